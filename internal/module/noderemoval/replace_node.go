package noderemoval

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
)

// ReplaceNodes is the module for hosts that are new machines under the names of existing
// nodes: the node of the previous machine is deleted, if that machine is no longer
// running.
func ReplaceNodes(env module.Env) engine.Module {
	return engine.Module{Name: "leave", Tasks: []engine.Task{{
		ID: "leave.replaced", Title: "replace node of previous machine", On: env.IsJoinNode,
		Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Run:      &engine.Action{Check: planReplacement, Apply: deletePrevious},
	}}}
}

// previousNode returns the node of another machine under the name of the host; nil if
// there is none. A host that has joined replaces no other machine.
func previousNode(ctx context.Context, s *engine.Scope) (*corev1.Node, error) {
	f := s.Host().Facts
	if f == nil || module.IsJoined(s.Host()) {
		return nil, nil
	}
	n, err := engine.GetValue(s, module.KeyKube).Nodes().Get(ctx, s.Host().Name)
	if n == nil || err != nil || kube.SameMachine(n, f.MachineID) {
		return nil, err
	}
	return n, nil
}

func planReplacement(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
	if engine.GetValue(s, module.KeyKube) == nil {
		return nil, nil // the cluster does not exist yet
	}
	n, err := previousNode(ctx, s)
	if err != nil {
		return nil, err
	}
	turned, err := engine.GetValue(s, module.KeyKube).Machines().ListForgotten(ctx)
	if err != nil {
		return nil, err
	}
	again := readmitChange(s, turned)
	if n == nil {
		return again, nil
	}
	st := kube.NodeStateOf(n)
	if st.Ready {
		return nil, diag.List{{
			ID: IDNodeRuns, Severity: diag.Error,
			Message: fmt.Sprintf("node %s is another machine (machine id %s), which is running", n.Name, st.MachineID),
			Hint:    "remove that node first: slipway delete node " + n.Name,
		}}
	}
	again = append(again, plan.OpChange{Kind: "node", Target: n.Name, Summary: "delete: it belongs to another machine " +
		"(machine id " + st.MachineID + "), which does not answer"})
	id, err := unclaimedID(ctx, s, st.MachineID)
	if err != nil || id == "" {
		return again, err
	}
	return append(again, plan.OpChange{Kind: module.KindObject, Target: policyTarget, Summary: "add that machine: " +
		"otherwise it could rejoin the cluster"}), nil
}

func deletePrevious(ctx context.Context, s *engine.Scope) error {
	client := engine.GetValue(s, module.KeyKube)
	if err := client.Machines().Readmit(ctx, s.Host().Facts.MachineID); err != nil {
		return err
	}
	n, err := previousNode(ctx, s)
	if n == nil || err != nil {
		return err
	}
	id, err := unclaimedID(ctx, s, n.Status.NodeInfo.MachineID)
	if err != nil {
		return err
	}
	if err := client.Machines().Forget(ctx, id); err != nil {
		return err
	}
	if err := client.Nodes().Delete(ctx, n.Name); err != nil {
		return err
	}
	return client.Pods().DeleteOnNode(ctx, n.Name)
}
