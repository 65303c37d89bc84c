package lifecycle

import (
	"context"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/pipeline"
)

// A SnapshotEtcdRequest asks for a backup set of a saved cluster.
type SnapshotEtcdRequest struct {
	Name string
	Options
	backups.SnapshotOptions
}

func (r SnapshotEtcdRequest) shared() sharedRequest {
	return sharedRequest{Subject: Subject{Name: r.Name}, Options: r.Options}
}

// behaviour makes a backup set as the command line does.
func (r SnapshotEtcdRequest) behaviour() behaviour {
	var made *backups.SnapshotInfo
	b := usual()
	b.wanted = savedOrFile
	b.begin = func(_ context.Context, p *prepared) error { return mayMaintain(p.recorded, "a snapshot") }
	b.pipeline = func(_ context.Context, p *prepared, _ pipeline.Parts) (engine.Pipeline, error) {
		options := r.SnapshotOptions
		if p.isScheduled() {
			options = backups.AutomaticOptions(p.env.Cluster)
		}
		return pipeline.SnapshotEtcd(func(ctx context.Context, tell func(event.Event)) (err error) {
			made, err = p.svc.Snapshot(ctx, p.name, options, event.SinkFunc(tell))
			return err
		}), nil
	}
	b.summary = func(context.Context, *prepared, *Result) []string { return []string{"backup set: " + made.File} }
	b.finish = func(_ *prepared, o *v1alpha1.Operation, _ *Result) { o.Status.Backup = made.Result() }
	b.save = func(_ *prepared, o *v1alpha1.OperationParameters) {
		o.Recipients, o.FromHost, o.FromCopy, o.Unverified = r.Recipients, r.Of, r.Copy, r.Unverified
	}
	return b
}

// A DrillEtcdRequest asks to test the restore of a backup set of a saved cluster.
type DrillEtcdRequest struct {
	Name string
	Options
	backups.DrillOptions
}

func (r DrillEtcdRequest) shared() sharedRequest {
	return sharedRequest{Subject: Subject{Name: r.Name}, Options: r.Options}
}

// behaviour tests a backup set as the command line does.
func (r DrillEtcdRequest) behaviour() behaviour {
	var tested *backups.DrillReport
	b := usual()
	b.wanted = savedOrFile
	b.begin = func(_ context.Context, p *prepared) error { return mayMaintain(p.recorded, "a restore test") }
	b.pipeline = func(_ context.Context, p *prepared, _ pipeline.Parts) (engine.Pipeline, error) {
		options := r.DrillOptions
		options.OrNew, options.New = true, p.isScheduled()
		return pipeline.DrillEtcd(func(ctx context.Context, tell func(event.Event)) (err error) {
			if tested, err = p.svc.Drill(ctx, p.name, options, event.SinkFunc(tell)); err != nil {
				return err
			}
			return tested.Err()
		}), nil
	}
	b.summary = func(context.Context, *prepared, *Result) []string { return []string{"the backup set can be restored"} }
	b.finish = func(_ *prepared, o *v1alpha1.Operation, _ *Result) { o.Status.Backup = tested.Result() }
	b.save = func(_ *prepared, o *v1alpha1.OperationParameters) {
		o.Backup, o.Identity, o.SignedBy, o.Unverified = r.From, r.Identity, r.SignedBy, r.Unverified
	}
	return b
}

// isScheduled reports whether the management plane has requested the operation because it was due.
func (p *prepared) isScheduled() bool {
	return p.requested != nil && p.requested.Annotations[operation.AnnotationScheduled] != ""
}
