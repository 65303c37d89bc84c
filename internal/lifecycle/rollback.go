package lifecycle

import (
	"context"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
)

// A RollbackRequest asks to roll back the latest unfinished operation of a saved cluster.
type RollbackRequest struct {
	Name string
	Options
	// Removal configures how hosts leave the cluster, and how nodes are drained. The
	// rollback of an upgrade takes values that are not set from the upgrade.
	Removal Removal
}

// PrepareRollback prepares to roll back the latest unfinished operation: a create by
// resetting the hosts, an apply by applying the previous description, an upgrade by
// reversing its steps.
func (s *Service) PrepareRollback(ctx context.Context, r RollbackRequest, progress event.Sink) (Prepared, error) {
	p, err := s.prepareRollback(ctx, &prepared{
		svc: s, request: sharedRequest{Subject: Subject{Name: r.Name}, Options: r.Options, removal: r.Removal},
	}, progress)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (s *Service) prepareRollback(ctx context.Context, p *prepared, progress event.Sink) (*prepared, error) {
	name := p.request.Name
	o, err := s.past.Unfinished(ctx, name)
	if err != nil {
		return nil, s.refuseCompletedUpgrade(ctx, name, err)
	}
	kind, ok := operation.Kind(o.Spec.Kind).RollbackKind()
	if !ok {
		return nil, diag.Refuse(idNoWayBack, "operation "+o.Name+" ("+o.Spec.Kind+") cannot be rolled back",
			"finish the operation: slipway resume "+name)
	}
	if err := p.become(kind); err != nil {
		return nil, err
	}
	if err := p.behaviour.rollBack(ctx, p, o); err != nil {
		return nil, err
	}
	return s.prepare(ctx, p, progress)
}

// asBefore returns the description before an operation, and sets the previous cluster file
// in the request that rolls it back.
func (p *prepared) asBefore(ctx context.Context, o *v1alpha1.Operation) (*v1alpha1.Cluster, error) {
	s, name := p.svc, o.Spec.ClusterRef.Name
	before, err := s.past.DescriptionBefore(ctx, name)
	if err != nil {
		return nil, err
	}
	recorded, err := s.Saved(ctx, name)
	if err != nil {
		return nil, err
	}
	savedstate.CopyPasswords(before, recorded)
	savedstate.CopySSHSettings(before, recorded)
	p.request.Source, err = s.past.SourceBefore(ctx, name)
	return before, err
}
