package lifecycle

import (
	"context"
	"errors"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/filesdir"
)

// A ClusterObject is a Cluster in an API, with files in a directory that exists only for one operation.
type ClusterObject struct {
	ID operation.ClusterID
	// FilesDir is the absolute path of the directory with the files of spec.filesFrom.
	FilesDir string
	// FileDigests maps the name of each file to a keyed digest of its content.
	FileDigests map[string]string
}

// object returns the Cluster object, empty for a cluster file.
func (s *Service) object() (o ClusterObject) {
	if s.Object != nil {
		o = *s.Object
	}
	return o
}

// withoutFilesDir returns a cluster as the records and plans have it.
func (s *Service) withoutFilesDir(c *v1alpha1.Cluster) *v1alpha1.Cluster {
	if s.Object == nil {
		return c
	}
	return filesdir.WithoutDir(c, s.Object.FilesDir)
}

// PrepareOperation prepares an operation that is saved already, because a controller or a user of the API
// has requested it. An operation that has begun is resumed. wanted is the Cluster object.
//
// It returns a *StaleError with the difference if the operation has an approved plan, and the plan would
// have another effect now.
func (s *Service) PrepareOperation(
	ctx context.Context, o *v1alpha1.Operation, wanted *v1alpha1.Cluster, progress event.Sink,
) (Prepared, error) {
	begun, err := s.hasBegun(ctx, o)
	if err != nil {
		return nil, err
	}
	kind := operation.Kind(o.Spec.Kind)
	if begun && kind.Resumable() {
		return s.prepareAgain(ctx, o, progress)
	}
	var p *prepared
	if kind.RollsBack() {
		p, err = s.prepareRequestedRollback(ctx, o, progress)
	} else {
		var r Request
		if r, err = requestOf(o, Subject{Cluster: wanted, Name: wanted.Name, Dir: s.object().FilesDir}); err != nil {
			return nil, err
		}
		p = s.start(r)
		p.requested = o
		p, err = s.prepare(ctx, p, progress)
	}
	if err != nil {
		return nil, err
	}
	err = p.refuseOtherKind()
	if !begun { // one that is run again was approved
		err = errors.Join(err, p.refuseOtherPlan(ctx))
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// prepareRequestedRollback prepares to roll back the operation that a request names, which must be the latest unfinished
// one of its cluster.
func (s *Service) prepareRequestedRollback(ctx context.Context, o *v1alpha1.Operation, progress event.Sink) (*prepared, error) {
	is, name := &o.Spec.Parameters, o.Spec.ClusterRef.Name
	if _, err := s.FindUnfinished(ctx, name, is.Operation); err != nil {
		return nil, s.refuseCompletedUpgrade(ctx, name, err)
	}
	return s.prepareRollback(ctx, &prepared{
		svc: s, requested: o, request: sharedRequest{Subject: Subject{Name: name}, Options: optionsOf(is), removal: removalOf(is)},
	}, progress)
}

// FindUnfinished returns the latest unfinished operation of a cluster. It refuses another one, if id names one.
func (s *Service) FindUnfinished(ctx context.Context, name, id string) (*v1alpha1.Operation, error) {
	return s.past.FindUnfinished(ctx, name, id)
}

// continueAnother returns the behaviour of a request without steps. The management plane makes the other operation
// continue.
func continueAnother() behaviour {
	b := usual()
	b.pipeline = func(context.Context, *prepared, pipeline.Parts) (engine.Pipeline, error) {
		return engine.Pipeline{}, nil
	}
	b.summary = func(context.Context, *prepared, *Result) []string { return nil }
	return b
}

// hasBegun reports whether an operation has begun. After an interruption, only the status of the cluster may
// have it.
func (s *Service) hasBegun(ctx context.Context, o *v1alpha1.Operation) (bool, error) {
	if o.Status.StartTime != nil {
		return true, nil
	}
	recorded, err := s.Saved(ctx, o.Spec.ClusterRef.Name)
	return recorded != nil && recorded.Status.Operation == o.Name, err
}

// prepareAgain resumes an operation, which must be the latest unfinished one of its cluster.
func (s *Service) prepareAgain(ctx context.Context, o *v1alpha1.Operation, progress event.Sink) (Prepared, error) {
	name := o.Spec.ClusterRef.Name
	latest, err := s.past.Unfinished(ctx, name)
	if err != nil {
		return nil, err
	}
	if latest.Name != o.Name {
		return nil, diag.Refuse(idOperationUnfinished, "operation "+o.Name+" cannot continue: operation "+latest.Name+" is later and unfinished",
			"retry operation "+latest.Name)
	}
	return s.resume(ctx, latest, ResumeRequest{Subject: Subject{Name: name, Dir: s.object().FilesDir}}, progress)
}

// refuseOtherKind refuses a request that the state of the cluster turns into another one.
func (p *prepared) refuseOtherKind() error {
	if string(p.kind) == p.requested.Spec.Kind {
		return nil
	}
	if operation.Kind(p.requested.Spec.Kind).RollsBack() && !p.kind.RollsBack() {
		return diag.Refuse(idOtherKind, "the latest operation of cluster "+p.name+" changed its description, which the Cluster object has",
			"change the Cluster object back")
	}
	return diag.Refuse(idOtherKind, "cluster "+p.name+" needs operation "+string(p.kind)+", but "+p.requested.Spec.Kind+" was requested",
		"request an operation of kind "+string(p.kind))
}

// refuseOtherPlan refuses a plan that differs from the approved one.
func (p *prepared) refuseOtherPlan(ctx context.Context) error {
	o := p.requested
	if o.Spec.ApprovedPlan == "" || o.Spec.ApprovedPlan == p.plan.Digest {
		return nil
	}
	saved, err := p.svc.Records.Operations().LoadPlan(ctx, o.Name)
	if errors.Is(err, records.ErrNotFound) {
		return &StaleError{} // a plan was approved before one was made
	}
	if err != nil {
		return err
	}
	return &StaleError{Difference: plan.Diff(saved, p.plan)}
}
