// Package leave takes nodes off a cluster that goes on without them: their
// pods go elsewhere first, and the node is deleted when its host is put back.
package leave

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
)

const (
	// IDBlocked is a node that cannot be drained however long one waits.
	IDBlocked = "drain-blocked"
	// IDOtherName is a host that is a node, by another name.
	IDOtherName = "node-other-name"
	// IDNodeRuns is a node in whose place another machine shall be, and which
	// runs.
	IDNodeRuns = "node-runs"
	// IDHostRuns is a host that is to be given up, and runs.
	IDHostRuns = "host-runs"
)

// Drain is the module that moves the pods of nodes that leave to others. Nobody
// drains a host that is given up: it is seen to that it does not run.
func Drain(env module.Env) engine.Module {
	limit := env.Removal.DrainTimeout
	if limit == 0 {
		limit = module.DefaultDrainTimeout
	}
	return engine.Module{Name: "leave", Tasks: []engine.Task{{
		ID: "leave.drain", Title: "drain node", On: env.Leaves, Timeout: limit,
		// Without an API there is nobody to ask whether a host runs.
		When: func(s *engine.Scope) bool { return env.Resets(s.Host()) || engine.Get(s, module.KeyKube) != nil },
		// Those that come may have to take the pods of those that go.
		Needs: []string{"nodes.ready"}, Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) { return undrained(ctx, env, s) },
			Apply: func(ctx context.Context, s *engine.Scope) error { return drain(ctx, env, s) },
		},
	}}}
}

// Server is the module that ends the API servers of control planes that leave,
// while they still have an etcd to say so in: the others, and all who go by
// their word, would send requests there until they believe it dead. A host on
// which nothing ends the pod does not stay for it.
func Server(env module.Env) engine.Module {
	return engine.Module{Name: "leave", Tasks: []engine.Task{{
		ID: "leave.server", Title: "end the API server", IgnoreError: true, Timeout: 2 * time.Minute,
		On: func(h *engine.Host) bool { return env.Resets(h) && h.HasRole(v1alpha1.RoleControlPlane) },
		// On workers this comes after the load balancer of whatever mode.
		Needs: []string{"leave.drain", "endpoint.pods"},
		Ops: func(*engine.Scope) (op.List, error) {
			return op.List{op.Absent{Path: module.APIServerManifest}, op.Wait{Ended: "kube-apiserver", TimeoutSeconds: 60}}, nil
		},
	}}}
}

// Member is the module that takes the members of hosts that leave out of etcd,
// before these hosts are touched.
func Member(env module.Env) engine.Module {
	return engine.Module{Name: "etcd", Tasks: []engine.Task{{
		ID: "leave.member", Title: "take members out of etcd", On: env.IsFirst, Timeout: 5 * time.Minute,
		// No API server may ask a member that is about to go.
		Needs: []string{"leave.drain", "leave.server", "join.settings"},
		Ops: func(*engine.Scope) (op.List, error) {
			var o op.EtcdRemove
			for _, h := range env.Members(env.WithLeaving()) {
				if slices.ContainsFunc(env.Leaving, func(l module.Leaving) bool { return l.Name == h.Name }) {
					o.Peers = append(o.Peers, module.EtcdPeer(h, false))
				}
			}
			return env.WithoutMembers(o), nil
		},
	}}}
}

// Node is the module that deletes the nodes of hosts that have been put back,
// or are given up. Until then the node tells everybody that the host is not
// done with.
func Node(env module.Env) engine.Module {
	return engine.Module{Name: "leave", Tasks: []engine.Task{{
		ID: "leave.node", Title: "delete node", On: env.Leaves, Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) { return undeleted(ctx, env, s) },
			Apply: func(ctx context.Context, s *engine.Scope) error { return remove(ctx, env, s) },
		},
	}}}
}

func undeleted(ctx context.Context, env module.Env, s *engine.Scope) ([]plan.OpChange, error) {
	change := []plan.OpChange{{Kind: "node", Target: s.Host().Name, Summary: "delete"}}
	client := engine.Get(s, module.KeyKube)
	if client == nil {
		return change, nil
	}
	n, err := node(ctx, s)
	if err != nil {
		return nil, err
	}
	if n == nil {
		change = nil
	}
	if !env.Resets(s.Host()) {
		if n != nil {
			change = append(change, plan.OpChange{Kind: module.KindObject, Target: policyTarget, Summary: "add this machine: it would be let in again when it comes back"})
		}
		return change, nil
	}
	again, err := readmission(ctx, s)
	return append(change, again...), err
}

const policyTarget = "ValidatingAdmissionPolicy " + kube.ForgottenPolicy

// readmission is the change by which a machine that was given up, and has been
// put back since, may be a node again.
func readmission(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
	ids, err := engine.Get(s, module.KeyKube).Forgotten(ctx)
	if err != nil || s.Host().Facts == nil || !slices.Contains(ids, s.Host().Facts.MachineID) {
		return nil, err
	}
	return []plan.OpChange{{Kind: module.KindObject, Target: policyTarget, Summary: "take this machine off: it may be a node again"}}, nil
}

func remove(ctx context.Context, env module.Env, s *engine.Scope) error {
	client := engine.Get(s, module.KeyKube)
	n, err := node(ctx, s)
	if err != nil {
		return err
	}
	if n != nil {
		if !env.Resets(s.Host()) { // before the node goes, or the host could make it again
			if err := client.Forget(ctx, n.Status.NodeInfo.MachineID); err != nil {
				return err
			}
			s.Note("%s: what is on it stays, its kubelet's credentials too; the cluster lets it in again when it has been put back", s.Host().Name)
		}
		if err := client.DeleteNode(ctx, n.Name); err != nil {
			return err
		}
	}
	if s.Host().Facts == nil || !env.Resets(s.Host()) {
		return nil
	}
	return client.Readmit(ctx, s.Host().Facts.MachineID)
}

// node is the host's node, nil if there is none: one of its name that is
// another machine is not its own.
func node(ctx context.Context, s *engine.Scope) (*corev1.Node, error) {
	n, err := engine.Get(s, module.KeyKube).Node(ctx, s.Host().Name)
	if n == nil || err != nil {
		return nil, err
	}
	if f := s.Host().Facts; f != nil && !kube.SameMachine(n, f.MachineID) {
		return nil, nil
	}
	return n, nil
}

func undrained(ctx context.Context, env module.Env, s *engine.Scope) ([]plan.OpChange, error) {
	change := []plan.OpChange{{Kind: "node", Target: s.Host().Name, Summary: "cordon and drain"}}
	client := engine.Get(s, module.KeyKube)
	if client == nil {
		return change, nil
	}
	n, err := node(ctx, s)
	if !env.Resets(s.Host()) {
		if n != nil && kube.State(n).Ready && !env.Removal.Force {
			err = runs(env, n.Name)
		}
		return nil, err
	}
	if err == nil && n == nil {
		err = otherNode(ctx, s)
	}
	if n == nil || err != nil {
		return nil, err
	}
	d, err := client.Undrained(ctx, n.Name)
	switch {
	case err != nil:
		return nil, err
	case !kube.State(n).Ready: // nobody ends its pods; they are lost with the node
		if !d.Cordon {
			return nil, nil
		}
		change[0].Summary = "cordon: its kubelet does not answer, its pods are made anew elsewhere when the node is gone"
	case len(d.Blocked) > 0 && !env.Removal.Force:
		return nil, blocked(n.Name, d.Blocked)
	case !d.Cordon && len(d.Pods) == 0:
		return nil, nil
	}
	return change, nil
}

// otherNode refuses a host that is a node by another name: it is not drained
// by this one.
func otherNode(ctx context.Context, s *engine.Scope) error {
	all, err := engine.Get(s, module.KeyKube).Nodes(ctx)
	if err != nil || s.Host().Facts == nil || s.Host().Facts.MachineID == "" {
		return err
	}
	for i := range all {
		if all[i].Name != s.Host().Name && all[i].Status.NodeInfo.MachineID == s.Host().Facts.MachineID {
			return diag.List{{
				ID: IDOtherName, Severity: diag.Error, Message: "the cluster has this host as node " + all[i].Name,
				Hint: "take it off by that name: slipway delete node " + all[i].Name,
			}}
		}
	}
	return nil
}

// runs refuses to give up a host whose kubelet reports: its pods would run on,
// and be made anew elsewhere.
func runs(env module.Env, name string) error {
	why := ""
	for _, l := range env.Leaving {
		if l.Name == name {
			why = l.Why
		}
	}
	return diag.List{{
		ID: IDHostRuns, Severity: diag.Error,
		Message: "it is to be given up (" + why + "), and the cluster says that its node is ready: it runs, or has been off for less than a minute",
		Hint:    "mend what keeps it from being reached; or, if it is gone, see that it is off, wait until the cluster says it is not ready (about 40 seconds), and try again; give it up as it is: --force",
	}}
}

// mostBlocked is how many pods a message names.
const mostBlocked = 10

func blocked(node string, pods []string) error {
	if more := len(pods) - mostBlocked; more > 0 {
		pods = append(pods[:mostBlocked:mostBlocked], fmt.Sprintf("and %d more", more))
	}
	return diag.List{{
		ID: IDBlocked, Severity: diag.Error,
		Message: "node " + node + " cannot be drained: pod " + strings.Join(pods, "; pod "),
		Hint:    "move or delete these pods, or change their disruption budgets; or have them deleted: --force",
	}}
}

func drain(ctx context.Context, env module.Env, s *engine.Scope) error {
	client := engine.Get(s, module.KeyKube)
	n, err := node(ctx, s)
	if n == nil || err != nil {
		return err
	}
	if err := client.Cordon(ctx, n.Name); err != nil {
		return err
	}
	if !kube.State(n).Ready {
		return nil
	}
	last := time.Time{}
	return client.Drain(ctx, n.Name, env.Removal.Force, func(m string) {
		if time.Since(last) >= time.Second { // each pod that goes is a change
			last = time.Now()
			s.Tell("%s", m)
		}
	})
}
