// Package noderemoval removes nodes from a running cluster: their pods move to other nodes
// first, and the node is deleted when its host has been reset.
package noderemoval

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
	// IDOtherName identifies a host that is a node under another name.
	IDOtherName = "node-other-name"
	// IDNodeRuns identifies a running node whose name another machine is to take.
	IDNodeRuns = "node-runs"
	// IDHostRuns identifies a host that is to be force-removed, but is running.
	IDHostRuns = "host-runs"
)

// DrainNodes is the module that drains nodes that are leaving. A force-removed host is not
// drained; it is only checked that it is not running.
func DrainNodes(env module.Env) engine.Module {
	return engine.Module{Name: "leave", Tasks: []engine.Task{{
		ID: "leave.drain", Title: "drain node", On: env.IsLeaving, Timeout: env.DrainTimeout(),
		// Without an API it cannot be checked whether a host is running.
		When: func(s *engine.Scope) bool { return env.IsReset(s.Host()) || engine.GetValue(s, module.KeyKube) != nil },
		// New nodes may have to take the pods of leaving nodes.
		Needs: []string{"nodes.ready"}, Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) { return planDrain(ctx, env, s) },
			Apply: func(ctx context.Context, s *engine.Scope) error { return drainNode(ctx, env, s) },
		},
	}}}
}

// begunKey returns the key of a host that has begun to leave, or is force-removed. It
// has no value for a host that remains, for example after an ignored error.
func begunKey(host string) engine.Key[bool] { return engine.NewKey("leave.begun "+host, false) }

func allBegunKeys(env module.Env) (refs []engine.KeyRef) {
	for _, l := range env.Leaving {
		refs = append(refs, begunKey(l.Name).Ref())
	}
	return refs
}

// MarkPaths returns files whose presence shows the progress of a host; facts are collected
// for them.
func MarkPaths() []string { return []string{module.LeavesMark, module.APIServerManifest} }

// StopServers is the module that stops the API servers of leaving control planes while
// their etcd still works, so that they can deregister. Otherwise clients would send
// requests to them until they time out. The removal cannot be undone from its beginning
// on, and a file on the host marks this. A failure to stop the pod does not block the
// removal.
func StopServers(env module.Env) engine.Module {
	return engine.Module{Name: "leave", Tasks: []engine.Task{
		{
			ID: "leave.begin", Title: "mark node as leaving", On: env.IsLeaving, Provides: allBegunKeys(env),
			// On workers this runs after the load balancer of the endpoint mode.
			Needs: []string{"leave.drain", "endpoint.pods"},
			Ops: func(s *engine.Scope) (op.List, error) {
				list, goes := beginRemoval(env, s.Host())
				if s.OperationID() == "" && goes { // the expected result
					engine.ProvideValue(s, begunKey(s.Host().Name), true)
				}
				return list, nil
			},
			After: func(_ context.Context, s *engine.Scope, _ []op.Result) error {
				if _, goes := beginRemoval(env, s.Host()); goes {
					engine.ProvideValue(s, begunKey(s.Host().Name), true)
				}
				return nil
			},
		},
		{
			ID: "leave.server", Title: "wait until API server has stopped", IgnoreError: true, Timeout: 2 * time.Minute,
			On: func(h *engine.Host) bool { return env.IsReset(h) && h.HasRole(v1alpha1.RoleControlPlane) },
			Ops: func(s *engine.Scope) (op.List, error) {
				if !isOwnHost(env, s.Host()) {
					return nil, nil
				}
				return op.List{op.Wait{Ended: "kube-apiserver", TimeoutSeconds: 60}}, nil
			},
		},
	}}
}

// beginRemoval returns the operations with which a host begins to leave: none on a host
// that is force-removed or blank. A host with parts of another cluster is not changed,
// and does not leave.
func beginRemoval(env module.Env, h *engine.Host) (list op.List, goes bool) {
	server := h.HasRole(v1alpha1.RoleControlPlane)
	switch {
	case !env.IsReset(h) || module.IsBlank(h):
		return nil, true
	case !isOwnHost(env, h):
		return nil, false
	case server || env.RunsEtcd(h):
		list = op.List{leavesMark()}
	}
	if server {
		list = append(list, op.Absent{Path: module.APIServerManifest})
	}
	return list, true
}

func isOwnHost(env module.Env, h *engine.Host) bool {
	return facts.Host{Facts: h.Facts}.IsManagedFor(env.Cluster.Name)
}

func leavesMark() op.File {
	return op.File{
		Path: module.LeavesMark, Mode: 0o600,
		Content: []byte("This host is leaving its cluster. It must be reset before it can join again.\n"),
	}
}

// RemoveMembers is the module that removes the etcd members of leaving hosts before the
// hosts are reset. A host that has not begun to leave remains a member.
func RemoveMembers(env module.Env) engine.Module {
	return engine.Module{Name: "etcd", Tasks: []engine.Task{{
		ID: "leave.member", Title: "remove etcd members", On: env.IsFirst, Timeout: 5 * time.Minute,
		// No API server may use a member that is about to be removed.
		Needs: []string{"leave.begin", "leave.server", "join.settings"}, Consumes: allBegunKeys(env),
		Ops: func(s *engine.Scope) (op.List, error) {
			var o op.EtcdRemove
			for _, h := range env.EtcdMembers(env.WithLeaving()) {
				if slices.ContainsFunc(env.Leaving, func(l module.LeavingHost) bool { return l.Name == h.Name }) {
					p := module.EtcdPeer(h, false)
					p.Stays = !engine.IsKnown(s, begunKey(h.Name))
					o.Peers = append(o.Peers, p)
				}
			}
			return env.CompleteMemberRemoval(o), nil
		},
	}}}
}

// DeleteNodes is the module that deletes the nodes of hosts that have been reset or are
// force-removed, after their etcd members are removed. Until then the node shows that the
// removal is not complete.
func DeleteNodes(env module.Env) engine.Module {
	return engine.Module{Name: "leave", Tasks: []engine.Task{{
		ID: "leave.node", Title: "delete node", On: env.IsLeaving, Needs: []string{"leave.member"},
		Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) { return planDelete(ctx, env, s) },
			Apply: func(ctx context.Context, s *engine.Scope) error { return deleteNode(ctx, env, s) },
		},
	}}}
}

func planDelete(ctx context.Context, env module.Env, s *engine.Scope) (change []plan.OpChange, err error) {
	host := s.Host().Name
	turn := func(machine string) plan.OpChange {
		return plan.OpChange{Kind: module.KindObject, Target: policyTarget, Summary: "add " + machine + ": otherwise it could rejoin the cluster"}
	}
	if engine.GetValue(s, module.KeyKube) == nil {
		change = []plan.OpChange{{Kind: "node", Target: host, Summary: "delete"}}
		return append(change, turn("the machine, if it is force-removed")), nil
	}
	n, given, err := findNode(ctx, env, s)
	if err != nil {
		return nil, err
	}
	what, machine := "delete", "this machine"
	if given && env.IsReset(s.Host()) {
		what, machine = "delete: it belongs to another machine ("+machineOf(n)+")", "that machine"
	}
	if n != nil {
		change = append(change, plan.OpChange{Kind: "node", Target: host, Summary: what})
	}
	turned, err := engine.GetValue(s, module.KeyKube).Machines().ListForgotten(ctx)
	if err != nil {
		return nil, err
	}
	id, err := returningMachine(ctx, env, s, n, given)
	if err != nil {
		return nil, err
	}
	if id != "" && !slices.Contains(turned, id) {
		change = append(change, turn(machine))
	}
	if env.IsReset(s.Host()) {
		change = append(change, readmitChange(s, turned)...)
	}
	return change, nil
}

// returningMachine returns the machine id of a force-removed machine that may come
// back; "" if there is none, the id is unknown, or another node has it. The kubelet of
// a node reports the id, and may report the id of another machine, which must not be
// blocked.
func returningMachine(ctx context.Context, env module.Env, s *engine.Scope, n *corev1.Node, given bool) (string, error) {
	l := findLeaving(env, s.Host().Name)
	switch {
	case n != nil && given:
		l.MachineID = n.Status.NodeInfo.MachineID
	case n != nil || !l.IsLost:
		return "", nil
	}
	return unclaimedID(ctx, s, l.MachineID)
}

// unclaimedID returns the machine id that the node of the host has reported; "" if it is
// invalid, or if another node has it.
func unclaimedID(ctx context.Context, s *engine.Scope, id string) (string, error) {
	if !kube.IsMachineID(id) {
		return "", nil
	}
	all, err := engine.GetValue(s, module.KeyKube).Nodes().List(ctx)
	if err != nil ||
		slices.ContainsFunc(all, func(o corev1.Node) bool { return o.Name != s.Host().Name && o.Status.NodeInfo.MachineID == id }) {
		return "", err
	}
	return id, nil
}

const policyTarget = "ValidatingAdmissionPolicy " + kube.ForgottenPolicy

// readmitChange returns the change that allows a force-removed machine, which has been
// reset since, to be a node again.
func readmitChange(s *engine.Scope, turned []string) []plan.OpChange {
	if f := s.Host().Facts; f == nil || !slices.Contains(turned, f.MachineID) {
		return nil
	}
	return []plan.OpChange{{Kind: module.KindObject, Target: policyTarget, Summary: "allow this machine: it can be a node again"}}
}

func deleteNode(ctx context.Context, env module.Env, s *engine.Scope) error {
	client := engine.GetValue(s, module.KeyKube)
	n, given, err := findNode(ctx, env, s)
	if err != nil {
		return err
	}
	// Block the machine before the node is deleted; otherwise the host could register it
	// again.
	id, err := returningMachine(ctx, env, s, n, given)
	if err != nil {
		return err
	}
	if id != "" {
		if err := client.Machines().Forget(ctx, id); err != nil {
			return err
		}
		who := s.Host().Name
		if env.IsReset(s.Host()) {
			who = "the previous machine of " + who + " (machine id " + id + ")"
		}
		s.ShowNote("%s: its files and kubelet credentials remain; it can rejoin the cluster after it has been reset", who)
	} else if n != nil && given {
		s.ShowNote("node %s: its machine id is invalid, or another node also has it; "+
			"the machine can rejoin the cluster with its present credentials", n.Name)
	}
	if n != nil {
		if err := client.Nodes().Delete(ctx, n.Name); err != nil {
			return err
		}
	}
	if n != nil && given { // other nodes were drained, and only have pods of DaemonSets
		if err := client.Pods().DeleteOnNode(ctx, n.Name); err != nil {
			return err
		}
	}
	if s.Host().Facts == nil || !env.IsReset(s.Host()) {
		return nil
	}
	return client.Machines().Readmit(ctx, s.Host().Facts.MachineID)
}

// findNode returns the node with the name of the host, or nil. given reports whether
// the node is force-removed: its host is, or the host at the address is not the machine
// of the node. That machine is not contacted. If the host is no longer in the state, a
// node of another machine does not belong to it.
func findNode(ctx context.Context, env module.Env, s *engine.Scope) (n *corev1.Node, given bool, err error) {
	n, err = engine.GetValue(s, module.KeyKube).Nodes().Get(ctx, s.Host().Name)
	if n == nil || err != nil {
		return nil, false, err
	}
	l := findLeaving(env, s.Host().Name)
	other := s.Host().Facts != nil && !kube.SameMachine(n, s.Host().Facts.MachineID)
	if other && l.IsRemovedFromState {
		return nil, false, nil
	}
	return n, l.IsLost || other, nil
}

// findLeaving returns the entry of a leaving host.
func findLeaving(env module.Env, name string) module.LeavingHost {
	i := slices.IndexFunc(env.Leaving, func(l module.LeavingHost) bool { return l.Name == name })
	return env.Leaving[i]
}

func machineOf(n *corev1.Node) string { return "machine id " + n.Status.NodeInfo.MachineID }

func planDrain(ctx context.Context, env module.Env, s *engine.Scope) ([]plan.OpChange, error) {
	change := []plan.OpChange{{Kind: "node", Target: s.Host().Name, Summary: "cordon and drain"}}
	client := engine.GetValue(s, module.KeyKube)
	if client == nil {
		return change, nil
	}
	n, given, err := findNode(ctx, env, s)
	if err == nil && (n == nil || given) && env.IsReset(s.Host()) {
		err = otherNodeError(ctx, s)
	}
	if given {
		if err == nil && kube.NodeStateOf(n).Ready && !env.Removal.Force {
			err = stillRunsError(env, n)
		}
		return nil, err
	}
	if n == nil || err != nil {
		return nil, err
	}
	d, err := client.Nodes().PodsToDrain(ctx, n.Name)
	switch {
	case err != nil:
		return nil, err
	case !kube.NodeStateOf(n).Ready: // its pods cannot be stopped; they are deleted with the node
		if !d.Cordon {
			return nil, nil
		}
		change[0].Summary = "cordon: its kubelet does not answer; its pods are recreated elsewhere after the node is deleted"
	case len(d.Blocked) > 0 && !env.Removal.Force:
		return nil, module.DrainBlocked(n.Name, d.Blocked)
	case !d.Cordon && len(d.Pods) == 0:
		return nil, nil
	}
	return change, nil
}

// otherNodeError returns an error for a host that is a node under another name: it
// would not be drained under this one.
func otherNodeError(ctx context.Context, s *engine.Scope) error {
	all, err := engine.GetValue(s, module.KeyKube).Nodes().List(ctx)
	if err != nil || s.Host().Facts == nil || s.Host().Facts.MachineID == "" {
		return err
	}
	for i := range all {
		if all[i].Name != s.Host().Name && all[i].Status.NodeInfo.MachineID == s.Host().Facts.MachineID {
			return diag.List{{
				ID: IDOtherName, Severity: diag.Error, Message: "this host is already in the cluster, as node " + all[i].Name,
				Hint: "remove that node first: slipway delete node " + all[i].Name,
			}}
		}
	}
	return nil
}

// stillRunsError returns the error for a force-removed host whose kubelet still
// reports: its pods would continue to run, and be created again elsewhere.
func stillRunsError(env module.Env, n *corev1.Node) error {
	l := findLeaving(env, n.Name)
	d := diag.Diagnostic{
		ID: IDHostRuns, Severity: diag.Error,
		Message: "node " + n.Name + " is ready, but its host is being force-removed (" + l.Why + "): " +
			"the host is running, or has been off for less than a minute",
		Hint: "fix the connection to the host. " + whenGone,
	}
	if !l.IsLost {
		d.Message = fmt.Sprintf("the host at %s is not node %s (%s), which is ready: "+
			"its machine is running, or has been off for less than a minute", l.Address, n.Name, machineOf(n))
		d.Hint = "write the address of that machine into the file, and run: slipway apply -f FILE. " + whenGone
	}
	return diag.List{d}
}

const whenGone = "If the host is permanently lost, switch it off, wait 40 seconds, and try again; " +
	"to remove it immediately, add --force"

func drainNode(ctx context.Context, env module.Env, s *engine.Scope) error {
	client := engine.GetValue(s, module.KeyKube)
	n, given, err := findNode(ctx, env, s)
	if n == nil || given || err != nil {
		return err
	}
	if err := client.Nodes().Cordon(ctx, n.Name); err != nil {
		return err
	}
	if !kube.NodeStateOf(n).Ready {
		return nil
	}
	return env.DrainNode(ctx, s, n.Name)
}
