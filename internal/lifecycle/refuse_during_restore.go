package lifecycle

import (
	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/lifecycle/etcdrescue"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
)

// mayMaintain returns an error if an operation on etcd is not possible: the etcd is
// external, or the cluster's creation has not finished.
func mayMaintain(recorded *v1alpha1.Cluster, what string) error {
	switch {
	case recorded.Spec.Etcd.External != nil:
		return inspect.RefuseExternalEtcd(recorded.Name, what)
	case !savedstate.IsCreated(recorded):
		return diag.Refuse(idNotCreated, "cluster "+recorded.Name+" is not running yet: its creation has not finished",
			"finish the creation first: slipway resume "+recorded.Name)
	}
	return nil
}

// needsPart reports whether a restore, a rescue or a CA rotation cannot continue without
// a host.
func needsPart(p *prepared, h *engine.Host) bool { return etcdrescue.HasPart(p.env.Cluster, h.Host) }

// continuesOnFailure reports whether the other hosts continue when one fails. In a restore or
// rescue they do not: some would have the new data and some the old data. In a CA
// rotation they do not either: one host would trust a CA that another has dropped. For
// these operations, IgnoreErrors only means that they begin without unreachable workers.
func (p *prepared) continuesOnFailure() bool {
	return p.request.IgnoreErrors && !p.kind.StopsOnFailure()
}
