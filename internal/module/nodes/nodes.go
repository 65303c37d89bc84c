// Package nodes manages the nodes in the cluster: labels, taints, and readiness.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/spec"
)

const (
	workerLabel = "node-role.kubernetes.io/worker"
	stepReady   = "nodes.ready"
	stepSpread  = "nodes.spread"
)

// dns is the Deployment of CoreDNS.
var dns = kube.SpreadTarget{Namespace: "kube-system", Deployment: "coredns", Selector: "k8s-app=kube-dns"}

// SetUpNodes is the module that waits for nodes and configures them.
func SetUpNodes(env module.Env) engine.Module {
	m := ConfigureNodes(env)
	m.Tasks = slices.Insert(m.Tasks, 1, WaitReady(env).Tasks...)
	return m
}

// WaitReady is the module that waits until nodes are ready.
func WaitReady(env module.Env) engine.Module {
	return engine.Module{Name: "nodes", Tasks: []engine.Task{
		{
			ID: stepReady, Title: "wait until node is ready", On: module.IsNode, Timeout: 6 * time.Minute,
			Consumes: []engine.KeyRef{module.KeyKube.Ref(), module.KeyKubeletStarted.Ref()},
			// Without a network from Slipway, no node becomes ready before the user has
			// installed one.
			When: func(*engine.Scope) bool { return env.Cluster.Spec.Network.Plugin != "none" },
			Run: &engine.Action{
				Check: notReady,
				Apply: func(ctx context.Context, s *engine.Scope) error {
					return engine.GetValue(s, module.KeyKube).Nodes().WaitReady(ctx, s.Host().Name,
						*engine.GetValue(s, module.KeyKubeletStarted), func(m string) { s.ShowProgress("%s", m) })
				},
			},
		},
	}}
}

// ConfigureNodes is the module that configures nodes that are ready.
func ConfigureNodes(env module.Env) engine.Module {
	consumes := []engine.KeyRef{module.KeyKube.Ref()}
	settled := []string{stepReady, stepSpread}
	if len(env.Leaving) > 0 { // they may have pods of CoreDNS
		settled = append(settled, "leave.node")
	}
	return engine.Module{Name: "nodes", Tasks: []engine.Task{
		{
			ID: "nodes.settings", Title: "set labels and taints", On: module.IsNode, Consumes: consumes,
			Run: &engine.Action{
				Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) { return settingsDiff(ctx, env, s) },
				Apply: func(ctx context.Context, s *engine.Scope) error {
					_, err := engine.GetValue(s, module.KeyKube).Nodes().Patch(ctx, s.Host().Name, wantedNode(env, s.Host()))
					return err
				},
			},
		},
		{
			// All pods of CoreDNS start on the node that is Ready first. Kubernetes would
			// not move any of them before that node is lost. The first other node that is
			// Ready takes its share while others still join.
			ID: stepSpread, Title: "spread CoreDNS across nodes", On: module.IsNode, Timeout: 6 * time.Minute, Consumes: consumes,
			When: func(s *engine.Scope) bool { return spreadsDNS(env, s) }, Rollout: engine.Rollout{MaxParallel: "1"},
			Run: &engine.Action{
				Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) { return planDNSMove(ctx, env, s) },
				Apply: func(ctx context.Context, s *engine.Scope) error {
					return engine.GetValue(s, module.KeyKube).Pods().Spread(ctx, dns, newNodeName(env, s.Host()),
						func(m string) { s.ShowProgress("%s", m) })
				},
			},
		},
		{
			ID: "nodes.dns", Title: "wait for CoreDNS", Manager: true, Consumes: consumes, Needs: settled, Timeout: 6 * time.Minute,
			When: func(*engine.Scope) bool { return env.Cluster.Spec.Network.Plugin != "none" },
			Run: &engine.Action{
				Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) { return dnsPending(ctx, env, s) },
				Apply: func(ctx context.Context, s *engine.Scope) error {
					return engine.GetValue(s, module.KeyKube).Workloads().WaitRollout(ctx, "Deployment", "kube-system", "coredns",
						func(m string) { s.ShowProgress("%s", m) })
				},
			},
		},
	}}
}

// spreadsDNS reports whether CoreDNS is spread when a node is ready: a node that joins, or
// the first node of the cluster if none joins.
func spreadsDNS(env module.Env, s *engine.Scope) bool {
	if env.Cluster.Spec.Network.Plugin == "none" || len(spec.HostsWithRole(env.Cluster, v1alpha1.RoleControlPlane)) < 2 {
		return false
	}
	if slices.ContainsFunc(s.Hosts(), func(h *engine.Host) bool { return isNewNode(env, h) }) {
		return isNewNode(env, s.Host())
	}
	first := slices.IndexFunc(s.Hosts(), func(h *engine.Host) bool { return module.IsNode(h) && env.IsStaying(h) })
	return first >= 0 && s.Hosts()[first].Name == s.Host().Name
}

// isNewNode reports whether a node was not in the cluster when the operation began.
func isNewNode(env module.Env, h *engine.Host) bool {
	return module.IsNode(h) && env.IsStaying(h) && !module.IsJoined(h)
}

// newNodeName returns the name of a node that joins, otherwise "".
func newNodeName(env module.Env, h *engine.Host) string {
	if isNewNode(env, h) {
		return h.Name
	}
	return ""
}

// planDNSMove returns the move of CoreDNS pods that is necessary if all of them are on one
// node although there is another node. A plan cannot know this for nodes that join.
func planDNSMove(ctx context.Context, env module.Env, s *engine.Scope) ([]plan.OpChange, error) {
	move := []plan.OpChange{{Kind: module.KindObject, Target: "pods of CoreDNS", Summary: "move some, if all are on one node"}}
	client := engine.GetValue(s, module.KeyKube)
	if client == nil || s.OperationID() == "" && isNewNode(env, s.Host()) {
		return move, nil
	}
	if is, err := client.Pods().AreColocated(ctx, dns, newNodeName(env, s.Host())); err != nil || !is {
		return nil, err
	}
	return move, nil
}

func wantedNode(env module.Env, h *engine.Host) kube.NodeWant {
	labels := map[string]string{}
	maps.Copy(labels, h.Labels)
	w := kube.NodeWant{Labels: labels, Taints: h.Taints, OwnedLabels: []string{workerLabel}}
	if h.HasRole(v1alpha1.RoleWorker) {
		labels[workerLabel] = ""
	}
	if h.HasRole(v1alpha1.RoleControlPlane) {
		w.Marks = []string{kube.ControlPlaneTaint} // the label is called as the taint
		w.OwnedTaints = []string{kube.ControlPlaneTaint + ":NoSchedule"}
		if spec.TaintsControlPlane(env.Cluster, h.Host) {
			w.Taints = append([]v1alpha1.Taint{{Key: kube.ControlPlaneTaint, Effect: "NoSchedule"}}, w.Taints...)
		}
	}
	return w
}

func settingsDiff(ctx context.Context, env module.Env, s *engine.Scope) ([]plan.OpChange, error) {
	client := engine.GetValue(s, module.KeyKube)
	wait := []plan.OpChange{{Kind: "node", Target: s.Host().Name, Summary: "set labels and taints"}}
	if client == nil {
		return wait, nil
	}
	n, err := client.Nodes().Get(ctx, s.Host().Name)
	if err != nil {
		return nil, err
	}
	if n == nil || !kube.SameMachine(n, s.Host().Facts.MachineID) {
		return wait, nil // the node does not exist yet
	}
	patch, changes := kube.NodeDiff(n, wantedNode(env, s.Host()))
	if patch == nil {
		return nil, nil
	}
	return []plan.OpChange{{Kind: "node", Target: s.Host().Name, Summary: strings.Join(changes, ", ")}}, nil
}

func notReady(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
	client, started := engine.GetValue(s, module.KeyKube), engine.GetValue(s, module.KeyKubeletStarted)
	wait := []plan.OpChange{{Kind: "wait", Target: "node " + s.Host().Name, Summary: "ready"}}
	if client == nil {
		return wait, nil
	}
	n, err := client.Nodes().Get(ctx, s.Host().Name)
	if err != nil {
		return nil, err
	}
	if n == nil {
		return wait, nil
	}
	st := kube.NodeStateOf(n)
	if id := s.Host().Facts.MachineID; !kube.SameMachine(n, id) {
		if !module.IsJoined(s.Host()) {
			return wait, nil // it is about to replace that machine
		}
		return nil, fmt.Errorf("the cluster has a node %s on another machine (machine id %s, this host has %s)", n.Name, st.MachineID, id)
	}
	if started != nil && st.ReadySince(*started) && !st.HasStaleTaint() {
		return nil, nil
	}
	return wait, nil
}

func dnsPending(ctx context.Context, env module.Env, s *engine.Scope) ([]plan.OpChange, error) {
	client := engine.GetValue(s, module.KeyKube)
	wait := []plan.OpChange{{Kind: "wait", Target: "CoreDNS", Summary: "ready"}}
	if client == nil {
		return wait, nil
	}
	missing, err := client.Workloads().RolloutPending(ctx, "Deployment", "kube-system", "coredns")
	var known *kube.Error
	if errors.As(err, &known) && known.Reason == kube.ReasonNotFound {
		return wait, nil // an earlier step creates it
	}
	if err != nil || missing != "" {
		return wait, err
	}
	for _, l := range env.Leaving {
		if n, err := client.Nodes().Get(ctx, l.Name); n != nil || err != nil {
			return wait, err // that node may have pods of CoreDNS
		}
	}
	return nil, nil
}
