// Package leave takes nodes off a cluster that goes on without them: their
// pods go elsewhere first, and the node is deleted when its host is put back.
package leave

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
)

const (
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
	return engine.Module{Name: "leave", Tasks: []engine.Task{{
		ID: "leave.drain", Title: "drain node", On: env.Leaves, Timeout: env.DrainTimeout(),
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

// begun is the key of a host that has begun to leave, or is given up. It has no
// value for one that stays as it is, whatever is ignored.
func begun(host string) engine.Key[bool] { return engine.NewKey("leave.begun "+host, false) }

func allBegun(env module.Env) (refs []engine.KeyRef) {
	for _, l := range env.Leaving {
		refs = append(refs, begun(l.Name).Ref())
	}
	return refs
}

// MarkPaths are those whose presence tells how far a host is; facts are asked
// for them.
func MarkPaths() []string { return []string{module.LeavesMark, module.APIServerManifest} }

// Server is the module that ends the API servers of control planes that leave,
// while they still have an etcd to say so in: the others, and all who go by
// their word, would send requests there until they believe it dead. From its
// beginning on there is no way back, and the host says so. One on which nothing
// ends the pod does not stay for it.
func Server(env module.Env) engine.Module {
	return engine.Module{Name: "leave", Tasks: []engine.Task{
		{
			ID: "leave.begin", Title: "begin to leave", On: env.Leaves, Provides: allBegun(env),
			// On workers this comes after the load balancer of whatever mode.
			Needs: []string{"leave.drain", "endpoint.pods"},
			Ops: func(s *engine.Scope) (op.List, error) {
				list, goes := begin(env, s.Host())
				if s.Operation() == "" && goes { // what it will be
					engine.Provide(s, begun(s.Host().Name), true)
				}
				return list, nil
			},
			After: func(_ context.Context, s *engine.Scope, _ []op.Result) error {
				if _, goes := begin(env, s.Host()); goes {
					engine.Provide(s, begun(s.Host().Name), true)
				}
				return nil
			},
		},
		{
			ID: "leave.server", Title: "wait until the API server has ended", IgnoreError: true, Timeout: 2 * time.Minute,
			On: func(h *engine.Host) bool { return env.Resets(h) && h.HasRole(v1alpha1.RoleControlPlane) },
			Ops: func(s *engine.Scope) (op.List, error) {
				if !ours(env, s.Host()) {
					return nil, nil
				}
				return op.List{op.Wait{Ended: "kube-apiserver", TimeoutSeconds: 60}}, nil
			},
		},
	}}
}

// begin is what is done on a host that begins to leave: nothing on one that is
// given up, or has nothing any more. One that has something of somebody else is
// not touched, and goes nowhere.
func begin(env module.Env, h *engine.Host) (list op.List, goes bool) {
	server := h.HasRole(v1alpha1.RoleControlPlane)
	switch {
	case !env.Resets(h) || module.Blank(h):
		return nil, true
	case !ours(env, h):
		return nil, false
	case server || env.RunsEtcd(h):
		list = op.List{mark()}
	}
	if server {
		list = append(list, op.Absent{Path: module.APIServerManifest})
	}
	return list, true
}

func ours(env module.Env, h *engine.Host) bool {
	return facts.Host{Facts: h.Facts}.Ours(env.Cluster.Name)
}

func mark() op.File {
	return op.File{Path: module.LeavesMark, Mode: 0o600, Content: []byte("This host has begun to leave its cluster. It is put back as it was before it can join again.\n")}
}

// Member is the module that takes the members of hosts that leave out of etcd,
// before these hosts are put back. One that has not begun to leave stays a member.
func Member(env module.Env) engine.Module {
	return engine.Module{Name: "etcd", Tasks: []engine.Task{{
		ID: "leave.member", Title: "take members out of etcd", On: env.IsFirst, Timeout: 5 * time.Minute,
		// No API server may ask a member that is about to go.
		Needs: []string{"leave.begin", "leave.server", "join.settings"}, Consumes: allBegun(env),
		Ops: func(s *engine.Scope) (op.List, error) {
			var o op.EtcdRemove
			for _, h := range env.Members(env.WithLeaving()) {
				if slices.ContainsFunc(env.Leaving, func(l module.Leaving) bool { return l.Name == h.Name }) {
					p := module.EtcdPeer(h, false)
					p.Stays = !engine.Known(s, begun(h.Name))
					o.Peers = append(o.Peers, p)
				}
			}
			return env.WithoutMembers(o), nil
		},
	}}}
}

// Node is the module that deletes the nodes of hosts that have been put back,
// or are given up, when their members are out of etcd. Until then the node tells
// everybody that the host is not done with.
func Node(env module.Env) engine.Module {
	return engine.Module{Name: "leave", Tasks: []engine.Task{{
		ID: "leave.node", Title: "delete node", On: env.Leaves, Needs: []string{"leave.member"}, Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) { return undeleted(ctx, env, s) },
			Apply: func(ctx context.Context, s *engine.Scope) error { return remove(ctx, env, s) },
		},
	}}}
}

func undeleted(ctx context.Context, env module.Env, s *engine.Scope) (change []plan.OpChange, err error) {
	host := s.Host().Name
	turn := func(machine string) plan.OpChange {
		return plan.OpChange{Kind: module.KindObject, Target: policyTarget, Summary: "add " + machine + ": it would be let in again when it comes back"}
	}
	if engine.Get(s, module.KeyKube) == nil {
		change = []plan.OpChange{{Kind: "node", Target: host, Summary: "delete"}}
		return append(change, turn("the machine, if it is given up")), nil
	}
	n, given, err := node(ctx, env, s)
	if err != nil {
		return nil, err
	}
	what, machine := "delete", "this machine"
	if given && env.Resets(s.Host()) {
		what, machine = "delete: it was another machine ("+machineOf(n)+")", "that machine"
	}
	if n != nil {
		change = append(change, plan.OpChange{Kind: "node", Target: host, Summary: what})
	}
	turned, err := engine.Get(s, module.KeyKube).Forgotten(ctx)
	if err != nil {
		return nil, err
	}
	id, err := comesBack(ctx, env, s, n, given)
	if err != nil {
		return nil, err
	}
	if id != "" && !slices.Contains(turned, id) {
		change = append(change, turn(machine))
	}
	if env.Resets(s.Host()) {
		change = append(change, readmission(s, turned)...)
	}
	return change, nil
}

// comesBack returns the id of a machine that was given up and may come back; "" if there
// is none, nobody knows it, or another node has it. A node's kubelet reports its id, and
// may report another machine's: that one must not be turned away.
func comesBack(ctx context.Context, env module.Env, s *engine.Scope, n *corev1.Node, given bool) (string, error) {
	l := leaver(env, s.Host().Name)
	switch {
	case n != nil && given:
		l.MachineID = n.Status.NodeInfo.MachineID
	case n != nil || !l.Gone:
		return "", nil
	}
	return unclaimed(ctx, s, l.MachineID)
}

// unclaimed returns the id of a machine that the host's node has reported; "" if it is
// not one, or if another node has it.
func unclaimed(ctx context.Context, s *engine.Scope, id string) (string, error) {
	if !kube.IsMachineID(id) {
		return "", nil
	}
	all, err := engine.Get(s, module.KeyKube).Nodes(ctx)
	if err != nil || slices.ContainsFunc(all, func(o corev1.Node) bool { return o.Name != s.Host().Name && o.Status.NodeInfo.MachineID == id }) {
		return "", err
	}
	return id, nil
}

const policyTarget = "ValidatingAdmissionPolicy " + kube.ForgottenPolicy

// readmission is the change by which a machine that was given up, and has been
// put back since, may be a node again.
func readmission(s *engine.Scope, turned []string) []plan.OpChange {
	if f := s.Host().Facts; f == nil || !slices.Contains(turned, f.MachineID) {
		return nil
	}
	return []plan.OpChange{{Kind: module.KindObject, Target: policyTarget, Summary: "take this machine off: it may be a node again"}}
}

func remove(ctx context.Context, env module.Env, s *engine.Scope) error {
	client := engine.Get(s, module.KeyKube)
	n, given, err := node(ctx, env, s)
	if err != nil {
		return err
	}
	// Before the node goes, or the host could make it again.
	id, err := comesBack(ctx, env, s, n, given)
	if err != nil {
		return err
	}
	if id != "" {
		if err := client.Forget(ctx, id); err != nil {
			return err
		}
		who := s.Host().Name
		if env.Resets(s.Host()) {
			who = "the machine that was " + who + " before (machine id " + id + ")"
		}
		s.Note("%s: its files and kubelet credentials remain; it can rejoin the cluster after it has been reset", who)
	} else if n != nil && given {
		s.Note("node %s: its machine id is not one, or another node has it too; the machine can rejoin the cluster with the credentials that it has", n.Name)
	}
	if n != nil {
		if err := client.DeleteNode(ctx, n.Name); err != nil {
			return err
		}
	}
	if n != nil && given { // of the others, nothing but DaemonSets' is left
		if err := client.DeletePods(ctx, n.Name); err != nil {
			return err
		}
	}
	if s.Host().Facts == nil || !env.Resets(s.Host()) {
		return nil
	}
	return client.Readmit(ctx, s.Host().Facts.MachineID)
}

// node is the node of a host's name, nil if there is none. It is given up if
// the host is, or if the host that answers is not the machine that the cluster
// has by this name: that one is not asked, whatever became of it. Of a host that
// is off the records another machine's node is not its own.
func node(ctx context.Context, env module.Env, s *engine.Scope) (n *corev1.Node, given bool, err error) {
	n, err = engine.Get(s, module.KeyKube).Node(ctx, s.Host().Name)
	if n == nil || err != nil {
		return nil, false, err
	}
	l := leaver(env, s.Host().Name)
	other := s.Host().Facts != nil && !kube.SameMachine(n, s.Host().Facts.MachineID)
	if other && l.Off {
		return nil, false, nil
	}
	return n, l.Gone || other, nil
}

// leaver is a host that leaves.
func leaver(env module.Env, name string) module.Leaving {
	i := slices.IndexFunc(env.Leaving, func(l module.Leaving) bool { return l.Name == name })
	return env.Leaving[i]
}

func machineOf(n *corev1.Node) string { return "machine id " + n.Status.NodeInfo.MachineID }

func undrained(ctx context.Context, env module.Env, s *engine.Scope) ([]plan.OpChange, error) {
	change := []plan.OpChange{{Kind: "node", Target: s.Host().Name, Summary: "cordon and drain"}}
	client := engine.Get(s, module.KeyKube)
	if client == nil {
		return change, nil
	}
	n, given, err := node(ctx, env, s)
	if err == nil && (n == nil || given) && env.Resets(s.Host()) {
		err = otherNode(ctx, s)
	}
	if given {
		if err == nil && kube.State(n).Ready && !env.Removal.Force {
			err = runs(env, n)
		}
		return nil, err
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
		return nil, module.DrainBlocked(n.Name, d.Blocked)
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
func runs(env module.Env, n *corev1.Node) error {
	l := leaver(env, n.Name)
	d := diag.Diagnostic{
		ID: IDHostRuns, Severity: diag.Error,
		Message: "it is to be given up (" + l.Why + "), and the cluster says that its node is ready: it runs, or has been off for less than a minute",
		Hint:    "mend what keeps it from being reached; or, " + whenGone,
	}
	if !l.Gone {
		d.Message = fmt.Sprintf("the host that answers at %s is not node %s (%s), which the cluster says is ready: that one runs, or has been off for less than a minute", l.Address, n.Name, machineOf(n))
		d.Hint = "write its address into the file, and: slipway apply -f FILE; or, " + whenGone
	}
	return diag.List{d}
}

const whenGone = "if it is gone, see that it is off, wait until the cluster says it is not ready (about 40 seconds), and try again; give it up as it is: --force"

func drain(ctx context.Context, env module.Env, s *engine.Scope) error {
	client := engine.Get(s, module.KeyKube)
	n, given, err := node(ctx, env, s)
	if n == nil || given || err != nil {
		return err
	}
	if err := client.Cordon(ctx, n.Name); err != nil {
		return err
	}
	if !kube.State(n).Ready {
		return nil
	}
	return env.Drain(ctx, s, n.Name)
}
