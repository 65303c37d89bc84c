package lifecycle

import (
	"cmp"
	"context"
	"errors"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/store"
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
	o, err := s.unfinished(name)
	if err != nil {
		return nil, s.refuseCompletedUpgrade(name, err)
	}
	kind, ok := operation.Kind(o.Spec.Type).RollbackKind()
	if !ok {
		return nil, refused(idNoWayBack, "operation "+o.Name+" ("+o.Spec.Type+") cannot be rolled back",
			"finish the operation: slipway resume "+name)
	}
	if err := p.become(kind); err != nil {
		return nil, err
	}
	if err := p.behaviour.rollBack(p, o); err != nil {
		return nil, err
	}
	return s.prepare(ctx, p, progress)
}

// asBefore returns the description before an operation, and sets the previous cluster file
// in the request that rolls it back.
func (p *prepared) asBefore(o *v1alpha1.Operation) (*v1alpha1.Cluster, error) {
	s, name := p.svc, o.Spec.Cluster
	before, err := s.descriptionBefore(name)
	if err != nil {
		return nil, err
	}
	recorded, err := s.record(name)
	if err != nil {
		return nil, err
	}
	copyPasswords(before, recorded)
	copySSHSettings(before, recorded)
	p.request.Source, err = s.sourceBefore(name)
	return before, err
}

// sourceBefore returns the previous cluster file, or empty text if it is not known: the
// saved file belongs to the operation that is rolled back.
func (s *Service) sourceBefore(name string) ([]byte, error) {
	text, err := s.Store.Clusters().LoadKeptSource(name)
	if errors.Is(err, store.ErrNotFound) {
		return []byte{}, nil
	}
	return text, err
}

// descriptionBefore returns the description of the latest successful operation; if there is none,
// the description of the creation. Hosts that were force-removed since then are left out.
func (s *Service) descriptionBefore(name string) (*v1alpha1.Cluster, error) {
	ops, err := s.Store.Operations().List(name)
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, o := range ops {
		switch kind := operation.Kind(o.Spec.Type); {
		case hasForgottenNodes(o):
			lost = append(lost, o.Spec.Nodes...)
		case kind.CreatesCluster(), kind.ChangesCluster() && o.Status.Phase == v1alpha1.OperationSucceeded:
			return s.plannedClusterWithout(o.Name, lost)
		}
	}
	return nil, refused(idNoWayBack, "cluster "+name+" has no successful operation to roll back to", "continue with: slipway resume "+name)
}

// copyPasswords copies the passwords that are written in the cluster file itself from the
// saved cluster, because plans do not contain passwords.
func copyPasswords(c, recorded *v1alpha1.Cluster) {
	if recorded == nil {
		return
	}
	c.Spec.SSH.Password = cmp.Or(c.Spec.SSH.Password, recorded.Spec.SSH.Password)
	known := map[string]string{}
	for _, h := range recorded.Spec.Hosts {
		known[h.Name] = h.SSH.Password
	}
	for i := range c.Spec.Hosts {
		h := &c.Spec.Hosts[i]
		h.SSH.Password = cmp.Or(h.SSH.Password, known[h.Name])
	}
}
