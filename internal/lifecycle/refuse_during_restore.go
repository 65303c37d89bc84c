package lifecycle

import (
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module/etcdbackup"
)

// mayMaintain returns an error if an operation on etcd is not possible: the etcd is
// external, or the cluster's creation has not finished.
func mayMaintain(recorded *v1alpha1.Cluster, what string) error {
	switch {
	case recorded.Spec.Etcd.External != nil:
		return inspect.RefuseExternalEtcd(recorded.Name, what)
	case !created(recorded):
		return refused(idNotCreated, "cluster "+recorded.Name+" is not running yet: its creation has not finished",
			"finish the creation first: slipway resume "+recorded.Name)
	}
	return nil
}

// refuseDuringEtcdSwap refuses to change hosts while a restore or a rescue is unfinished:
// some etcd members may have the new data and others the previous data. Only that
// operation knows which, and stops what must not run in the meantime.
func (s *Service) refuseDuringEtcdSwap(recorded *v1alpha1.Cluster) error {
	swaps, err := s.unfinishedEtcdSwap(recorded.Name)
	if swaps == nil || err != nil {
		return err
	}
	id := idOperationUnfinished
	if operation.Kind(swaps.Spec.Type).DeclaresLost() {
		id = idRescueUnfinished
	}
	return refused(id, "operation "+swaps.Name+" has begun to replace the etcd data of cluster "+recorded.Name+" and is unfinished",
		"finish the operation first: slipway resume "+recorded.Name)
}

// unfinishedEtcdSwap returns the latest restore or rescue that has begun to replace the
// etcd data. It returns nil if there is none, or if that operation or a later restore or
// rescue has reached the point at which all members serve the new data.
func (s *Service) unfinishedEtcdSwap(name string) (*v1alpha1.Operation, error) {
	ops, err := s.Store.Operations().List(name)
	if err != nil {
		return nil, err
	}
	for _, o := range ops {
		kind := operation.Kind(o.Spec.Type)
		if kind.CreatesCluster() || kind.ReplacesEtcdData() && o.Status.Phase == v1alpha1.OperationSucceeded {
			break
		}
		if !kind.ReplacesEtcdData() || o.Status.StartTime == nil {
			continue
		}
		done, begun, err := s.steps(o.Name)
		switch {
		case err != nil:
			return nil, err
		case hasStep(done, etcdbackup.StepReached):
			return nil, nil
		case hasStep(begun, etcdbackup.StepSwap):
			return &o, nil
		}
	}
	return nil, nil
}

// hasStep reports whether a step is in the set for any host.
func hasStep(steps map[string]bool, id string) bool {
	for step := range steps {
		if task, _, _ := strings.Cut(step, "@"); task == id {
			return true
		}
	}
	return false
}

// needsPart reports whether a restore, a rescue or a CA rotation cannot continue without
// a host.
func needsPart(p *prepared, h *engine.Host) bool { return hasPart(p.env.Cluster, h.Host) }

// continuesOnFailure reports whether the other hosts continue when one fails. In a restore or
// rescue they do not: some would have the new data and some the old data. In a CA
// rotation they do not either: one host would trust a CA that another has dropped. For
// these operations, IgnoreErrors only means that they begin without unreachable workers.
func (p *prepared) continuesOnFailure() bool {
	return p.request.IgnoreErrors && !p.kind.StopsOnFailure()
}
