package lifecycle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
)

// A ResumeRequest asks to resume the latest unfinished operation of a cluster. The rest is as
// it was when the operation began.
type ResumeRequest struct {
	// Subject is the cluster. A file must describe the cluster that the operation applies.
	Subject
	Options
	// Removal, if set, changes how hosts leave the cluster, and how nodes are drained.
	Removal Removal
	// PauseAfter selects where an upgrade stops.
	PauseAfter Pause
}

// PrepareResume prepares to resume the latest unfinished operation of a cluster.
func (s *Service) PrepareResume(ctx context.Context, r ResumeRequest, progress event.Sink) (Prepared, error) {
	o, err := s.past.Unfinished(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	return s.resume(ctx, o, r, progress)
}

// resume prepares to resume an operation, which is the latest unfinished one of its cluster.
func (s *Service) resume(ctx context.Context, o *v1alpha1.Operation, r ResumeRequest, progress event.Sink) (Prepared, error) {
	name := r.Name
	done, _, err := s.past.Steps(ctx, o.Name)
	if err != nil {
		return nil, err
	}
	recorded, err := s.Saved(ctx, name)
	if err != nil {
		return nil, err
	}
	wanted, target := recorded, (*v1alpha1.Cluster)(nil)
	kind := operation.Kind(o.Spec.Kind)
	if recorded == nil || kind.ChangesCluster() { // otherwise hosts were only prepared or forgotten
		if wanted, err = s.past.PlannedCluster(ctx, o.Name); err != nil {
			return nil, err
		}
	}
	if recorded == nil && kind.RemovesCluster() && o.Status.Reason == reasonRemoving {
		return s.finishRemoval(o, wanted, r)
	}
	switch {
	case recorded == nil:
		savedstate.CopyPasswords(wanted, r.Cluster)
	case kind.ChangesCluster():
		wanted = resumeTarget(recorded, wanted)
		target = wanted
	}
	changed, err := s.compareFile(ctx, o, wanted, r.Subject)
	if err != nil {
		return nil, err
	}
	if r.Cluster = nil; recorded == nil {
		r.Cluster = wanted
	}
	if describesPathEnd(wanted, o) {
		r.Source = nil
	}
	p := &prepared{svc: s, request: r.resumed(&o.Spec.Parameters), nodes: o.Spec.Parameters.Nodes, target: target, continues: o, done: done}
	if err := p.become(kind); err != nil {
		return nil, err
	}
	p.behaviour.resume(&o.Spec.Parameters)
	p, err = s.prepare(ctx, p, progress)
	if err != nil {
		return nil, err
	}
	p.findings = append(p.findings, changed...)
	return p, nil
}

// reasonRemoving is the reason in the status of an operation that has reset all hosts and removes the saved
// cluster.
const reasonRemoving = "RemovingRecords"

// finishRemoval prepares to save the end of an operation that has removed the cluster. It needs no host.
func (s *Service) finishRemoval(o *v1alpha1.Operation, c *v1alpha1.Cluster, r ResumeRequest) (Prepared, error) {
	p := &prepared{
		svc: s, name: c.Name, request: r.resumed(&o.Spec.Parameters), continues: o, onlyRecords: true,
		env: module.Env{Cluster: c}, plan: &plan.Plan{Cluster: c.Name, Operation: o.Spec.Kind},
	}
	if err := p.become(operation.Kind(o.Spec.Kind)); err != nil {
		return nil, err
	}
	p.behaviour.summary = func(context.Context, *prepared, *Result) []string { return nil }
	return p, nil
}

// resumed returns the shared parts of the request with which the operation began, changed by
// this request.
func (r ResumeRequest) resumed(o *v1alpha1.OperationParameters) sharedRequest {
	r.IgnoreChecks = append(r.IgnoreChecks, o.IgnoredChecks...)
	r.Removal.Force, r.TakeOver = r.Removal.Force || o.Force, r.TakeOver || o.TakeOver
	r.Removal.DrainTimeout = cmp.Or(r.Removal.DrainTimeout, o.DrainTimeout.Duration)
	return sharedRequest{
		Subject: r.Subject, Options: r.Options, removal: r.Removal,
		rollout: module.Upgrade{MaxUnavailable: o.MaxUnavailable, PauseAfter: r.PauseAfter},
		forget:  o.Forget, keepFailed: o.KeepFailed,
	}
}

// compareFile compares the description that a resume continues with to the cluster
// file. If a file is given, a difference is an error. Otherwise it compares with the
// file that the saved cluster was made from, if that exists, and a difference is a
// warning. It compares nothing if the operation removes the cluster or is about
// certificates.
func (s *Service) compareFile(ctx context.Context, o *v1alpha1.Operation, goesOn *v1alpha1.Cluster, r Subject) (diag.List, error) {
	if !operation.Kind(o.Spec.Kind).ComparesFile() {
		return nil, nil
	}
	d := diag.Diagnostic{ID: idSpecChanged, Severity: diag.Error}
	if r.Cluster != nil {
		same, err := s.equalsSaved(fileForMinor(goesOn, o, r.Cluster), r.Dir, goesOn)
		if same || err != nil {
			return nil, err
		}
		d.Message = "the file has changed since operation " + o.Name + " began; a resume would use the old version"
		d.Hint = "apply the new version: slipway apply -f " + cmp.Or(r.File, "FILE")
		if k := operation.Kind(o.Spec.Kind); k.ChangesVersion() || k.ReplacesEtcdData() { // no apply until it is finished
			d.Hint = "resume without -f: slipway resume " + goesOn.Name
		}
		return nil, diag.List{d}
	}
	source, err := s.Records.Clusters().LoadSource(ctx, goesOn.Name)
	if errors.Is(err, records.ErrNotFound) || err == nil && source.Path == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// Reading a pipe or a terminal would block.
	if info, err := os.Stat(source.Path); err != nil || !info.Mode().IsRegular() {
		return nil, nil // a file that was moved away proves nothing
	}
	text, err := bounded.ReadFile(source.Path, bounded.Config)
	if err != nil || bytes.Equal(text, source.Text) {
		return nil, nil
	}
	loaded, err := reader(goesOn).Load(source.Path, text)
	if err == nil {
		same, err := s.equalsSaved(fileForMinor(goesOn, o, loaded.Cluster), filepath.Dir(source.Path), goesOn)
		if same || err != nil || loaded.Cluster.Name != goesOn.Name {
			return nil, err
		}
	}
	d.Severity, d.Message = diag.Warning, source.Path+" has changed since operation "+o.Name+" began; this resume uses the old version"
	d.Hint = "to apply the new version instead: slipway apply -f " + source.Path
	return diag.List{d}, nil
}

// equalsSaved reports whether a cluster from a file in dir equals the saved one.
func (s *Service) equalsSaved(c *v1alpha1.Cluster, dir string, recorded *v1alpha1.Cluster) (bool, error) {
	wanted := s.asRecorded(c, recorded)
	if err := spec.MakePathsAbsolute(wanted, spec.Paths{Dir: dir, Home: s.Home}); err != nil {
		return false, err
	}
	return savedstate.HaveSameSpec(wanted, recorded), nil
}
