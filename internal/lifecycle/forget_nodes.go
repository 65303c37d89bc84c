package lifecycle

import (
	"context"
	"errors"
	"slices"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/pipeline"
)

// forgetInstead makes a request to force-remove hosts one of kind ForgetNodes, which
// leaves an unfinished upgrade, restore or runtime change alone. It does so if that
// unfinished operation is the reason for the refusal, and reports whether it did.
func (r DeleteNodesRequest) forgetInstead(ctx context.Context, p *prepared, refusal error) bool {
	var list diag.List
	if !errors.As(refusal, &list) || !slices.Contains([]string{idUpgradeUnfinished, idMigrationAlone, idOperationUnfinished}, list[0].ID) ||
		!r.Forget || len(r.Hosts) > 0 {
		return false
	}
	p.kind, p.behaviour = operation.ForgetNodes, forgetDuring(list[0].ID, r)
	return true
}

// forgetNodes continues to remove lost hosts.
func forgetNodes() behaviour { return forgetDuring(idUpgradeUnfinished, DeleteNodesRequest{}) }

// forgetDuring removes lost hosts while another operation is unfinished. It removes them
// from etcd and the API; while a restore replaces the etcd data, it removes them from the
// saved state only. unfinished is the error id with which other operations are refused.
func forgetDuring(unfinished string, r DeleteNodesRequest) behaviour {
	stateOnly := false
	b := usual()
	b.wanted = r.withoutRemoved
	b.hostFindings = func(p *prepared) diag.List { return p.refuseReachableHosts(unfinished) }
	b.pipeline = func(ctx context.Context, p *prepared, parts pipeline.Parts) (engine.Pipeline, error) {
		swaps, err := p.svc.past.UnfinishedEtcdSwap(ctx, p.env.Cluster.Name)
		if stateOnly = swaps != nil; stateOnly {
			return pipeline.ForgetNodesFromState(p.env, parts), err
		}
		return pipeline.ForgetNodes(p.env, parts), err
	}
	b.summary = func(_ context.Context, p *prepared, res *Result) []string {
		if stateOnly {
			return p.describeLeftHosts(res, func(l module.LeavingHost) string {
				return l.Name + " was removed from the saved state, and a new restore leaves it out; if its node is listed after " +
					"that restore: slipway kubectl " + p.env.Cluster.Name + " -- delete node " + l.Name
			})
		}
		return p.describeLeftHosts(res, p.describeLeftHost)
	}
	return b
}

// refuseReachableHosts refuses to remove hosts that are not lost while another operation is
// unfinished: to remove them takes more than to forget them.
func (p *prepared) refuseReachableHosts(unfinished string) (list diag.List) {
	for _, l := range p.env.Leaving {
		hint := "finish the unfinished operation first: slipway resume " + p.env.Cluster.Name
		if p.continues != nil {
			hint = "power off the host permanently (its removal has begun and may be complete), then run: slipway resume " + p.env.Cluster.Name
		}
		if !l.IsLost {
			list = append(list, diag.Diagnostic{
				ID: unfinished, Severity: diag.Error, Host: l.Name,
				Message: "is reachable; while an upgrade, an etcd restore or a runtime change is unfinished, only " +
					"permanently lost hosts can be removed",
				Hint: hint,
			})
		}
	}
	return list
}
