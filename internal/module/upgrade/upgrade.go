// Package upgrade changes nodes to another version of Kubernetes, a few at a time: each is
// drained, and is uncordoned when it is ready again.
package upgrade

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/spec"
)

// IDUnready identifies a node that is not ready before its upgrade: harm from the upgrade
// could not be detected.
const IDUnready = "upgrade-node-unready"

// stepNodeComplete is the last task of the upgrade of a node.
const stepNodeComplete = "upgrade.uncordon"

// RollOut returns a module that runs the tasks of others on nodes in waves: first the
// leader control plane alone, then each other control plane, then workers, several at a
// time. A rollback uses the reverse order, because no kubelet may be newer than an API
// server that it uses. A node that does not complete stops all later waves.
func RollOut(env module.Env, parts ...engine.Module) (engine.Module, error) {
	waves, err := orderHosts(env)
	if err != nil {
		return engine.Module{}, err
	}
	m := engine.Module{
		Name: "upgrade", Tasks: []engine.Task{drainTask(env)},
		Waves: func(h *engine.Host) int { return waves.of[h.Name] },
		Pause: waves.pauseAfter(env.Upgrade.PauseAfter),
	}
	for _, p := range parts {
		m.Tasks = append(m.Tasks, p.Tasks...)
	}
	m.Tasks = append(m.Tasks, uncordonTask(env))
	return m, nil
}

// RollOutSettings returns a module that runs the tasks of others on existing hosts in
// the same order, without draining them. A host that does not serve afterwards as
// before stops all later hosts. Hosts that have not joined yet wait for no other.
func RollOutSettings(env module.Env, parts ...engine.Module) (engine.Module, error) {
	waves, err := orderHosts(env)
	if err != nil {
		return engine.Module{}, err
	}
	m := engine.Module{Name: "node", Changing: true, Waves: func(h *engine.Host) int {
		if wave, ok := waves.of[h.Name]; ok && env.IsMember(h) {
			return wave
		}
		return -1
	}}
	for _, p := range parts {
		m.Tasks = append(m.Tasks, p.Tasks...)
	}
	return m, nil
}

// After makes tasks of modules wait for a step on all its hosts.
func After(step string, modules ...engine.Module) []engine.Module {
	for _, m := range modules {
		for i := range m.Tasks {
			t := &m.Tasks[i]
			t.Needs = append(slices.Clone(t.Needs), step)
		}
	}
	return modules
}

// AfterNodes makes all tasks of modules wait until every node is complete.
func AfterNodes(modules ...engine.Module) []engine.Module {
	for _, m := range modules {
		for i := range m.Tasks {
			t := &m.Tasks[i]
			t.Needs, t.NeedsAll = append(slices.Clone(t.Needs), stepNodeComplete), true
		}
	}
	return modules
}

// waveOrder holds hosts by their wave: control planes, hosts that are not nodes, such as
// hosts with only etcd, and workers.
type waveOrder struct {
	of            map[string]int
	controlPlanes int // number of control plane waves, which come first
}

func orderHosts(env module.Env) (waveOrder, error) {
	first := env.FirstControlPlane().Name
	o := waveOrder{of: map[string]int{first: 0}, controlPlanes: 1}
	var others, workers []string
	for _, h := range env.Cluster.Spec.Hosts {
		switch {
		case h.Name == first:
		case env.Reboots != nil && env.Reboots[h.Name] == "": // it continues to run
		case spec.HasRole(h, v1alpha1.RoleControlPlane):
			o.of[h.Name] = o.controlPlanes
			o.controlPlanes++
		case spec.HasRole(h, v1alpha1.RoleWorker):
			workers = append(workers, h.Name)
		default:
			others = append(others, h.Name)
		}
	}
	for i, name := range others {
		o.of[name] = o.controlPlanes + i
	}
	atOnce, err := engine.ParseBound(env.Upgrade.MaxUnavailable, len(workers))
	if err != nil {
		return o, err
	}
	begin := o.controlPlanes + len(others)
	last := begin - 1
	for i, name := range workers {
		o.of[name] = begin + i/max(1, atOnce)
		last = max(last, o.of[name])
	}
	if env.Upgrade.IsRollback {
		for name := range o.of {
			o.of[name] = last - o.of[name]
		}
	}
	for name := range o.of { // nodes in the middle of a change go first: others may wait for components on them
		if len(env.MidRuntimeChange) > 0 && !slices.Contains(env.MidRuntimeChange, name) {
			o.of[name] += len(o.of)
		}
	}
	return o, nil
}

func (o waveOrder) pauseAfter(after module.Pause) func(int) bool {
	return func(wave int) bool {
		switch after {
		case module.PauseCanary:
			return wave == 0
		case module.PauseControlPlane:
			return wave == o.controlPlanes-1
		case module.PauseWave:
			return true
		}
		return false
	}
}

func drainTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "upgrade.drain", Title: "drain node", On: module.IsNode, Timeout: env.DrainTimeout(),
		Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) { return planDrain(ctx, env, s) },
			Apply: func(ctx context.Context, s *engine.Scope) error {
				if err := engine.GetValue(s, module.KeyKube).Nodes().Cordon(ctx, s.Host().Name); err != nil {
					return err
				}
				return env.DrainNode(ctx, s, s.Host().Name)
			},
		},
	}
}

// planDrain returns the change that a node needs before its upgrade. A node without
// another node for its pods is not drained: its pods continue to run.
func planDrain(ctx context.Context, env module.Env, s *engine.Scope) ([]plan.OpChange, error) {
	client := engine.GetValue(s, module.KeyKube)
	drain := []plan.OpChange{{Kind: "node", Target: s.Host().Name, Summary: "cordon, and move its pods to other nodes"}}
	if env.NewRuntime && !env.ChangesRuntime(s.Host()) {
		return nil, nil
	}
	if client == nil {
		return drain, nil
	}
	if ended, err := hasStoppedComponents(ctx, env, s.Host()); ended || err != nil {
		return nil, err // the API may be down with it
	}
	nodes, err := client.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == s.Host().Name })
	if at < 0 || !needsChange(env, s.Host(), &nodes[at]) {
		return nil, nil
	}
	n := &nodes[at]
	if !kube.NodeStateOf(n).Ready {
		if env.Upgrade.Resumed || s.OperationID() != "" {
			return nil, nil // later steps make it ready, or report that it is not
		}
		return nil, diag.List{{
			ID: IDUnready, Severity: diag.Error, Message: "node " + n.Name + " is not ready: " + kube.NodeStateOf(n).Message,
			Hint: "repair the node, or remove it if it is permanently lost: slipway delete node " + n.Name + " --forget",
		}}
	}
	if !hasReplacement(nodes, at) {
		return nil, nil
	}
	d, err := client.Nodes().PodsToDrain(ctx, n.Name)
	switch {
	case err != nil:
		return nil, err
	case len(d.Blocked) > 0 && !env.Removal.Force:
		return nil, module.DrainBlocked(n.Name, d.Blocked)
	case !d.Cordon && len(d.Pods) == 0:
		return nil, nil
	}
	return drain, nil
}

// hasStoppedComponents reports whether a control plane is in the middle of a change of
// the runtime, and its components have stopped: there are no pods to move.
func hasStoppedComponents(ctx context.Context, env module.Env, h *engine.Host) (bool, error) {
	if !slices.Contains(env.MidRuntimeChange, h.Name) {
		return false, nil
	}
	return isServerDown(ctx, env, h)
}

// isServerDown reports whether a host is a control plane whose own API server is not ready.
func isServerDown(ctx context.Context, env module.Env, h *engine.Host) (bool, error) {
	if !h.HasRole(v1alpha1.RoleControlPlane) {
		return false, nil
	}
	results, err := h.Conn.Check(ctx, op.List{op.Wait{HTTP: env.LocalAPIReadyURL()}})
	return len(results) == 1 && results[0].Status == op.Changed, err
}

// NodesToDrain returns the nodes that an upgrade drains.
func NodesToDrain(nodes []corev1.Node) (names []string) {
	for i := range nodes {
		if hasReplacement(nodes, i) {
			names = append(names, nodes[i].Name)
		}
	}
	return names
}

// needsChange reports whether a node still has to be changed: it has another version or
// another container runtime, or it still has to be rebooted.
func needsChange(env module.Env, h *engine.Host, n *corev1.Node) bool {
	if env.Reboots != nil {
		return env.NeedsReboot(h)
	}
	if env.NewRuntime {
		return env.ChangesRuntime(h)
	}
	return kube.NodeStateOf(n).Version != env.Release.Kubernetes
}

// hasReplacement reports whether there is another node for the pods of a node.
func hasReplacement(nodes []corev1.Node, at int) bool {
	return slices.ContainsFunc(nodes, func(o corev1.Node) bool { return kube.ToleratesNodeOf(&o, &nodes[at]) })
}

// uncordonTask uncordons a node that was cordoned for the upgrade. It runs after the node
// is ready.
func uncordonTask(env module.Env) engine.Task {
	return engine.Task{
		ID: stepNodeComplete, Title: "uncordon node", On: module.IsNode, Timeout: 2 * gateTime, Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				open := []plan.OpChange{{Kind: "node", Target: s.Host().Name, Summary: "uncordon"}}
				client := engine.GetValue(s, module.KeyKube)
				if client == nil {
					return open, nil
				}
				if s.OperationID() == "" { // it is cordoned or will be cordoned
					will, err := planDrain(ctx, env, s)
					if len(will) > 0 || err != nil {
						return open, err
					}
				}
				n, err := client.Nodes().Get(ctx, s.Host().Name)
				if n == nil || err != nil || !kube.IsCordoned(n) {
					return nil, err
				}
				return open, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				if err := proxyGate(ctx, env, s); err != nil {
					return err
				}
				return engine.GetValue(s, module.KeyKube).Nodes().Uncordon(ctx, s.Host().Name)
			},
		},
	}
}

const stepDNS = "upgrade.dns"

// AfterCoreDNS makes kubeadm set up CoreDNS after CoreDNS has its older version.
func AfterCoreDNS(modules ...engine.Module) []engine.Module {
	for _, m := range modules {
		for i := range m.Tasks {
			if t := &m.Tasks[i]; t.ID == "kubeadm.init.addon-dns" {
				t.Needs = append(slices.Clone(t.Needs), stepDNS)
			}
		}
	}
	return modules
}

// RollBackCoreDNS is the module that gives CoreDNS an older version before kubeadm sets
// it up: kubeadm refuses to migrate its configuration backwards.
func RollBackCoreDNS(env module.Env) engine.Module {
	return engine.Module{Name: "dns", Tasks: []engine.Task{
		rollBackTask(stepDNS, "roll back CoreDNS", "Deployment", "coredns", env.Release.ImageRefs()["coredns"], nil),
	}}
}

// StepProxy is the step that must end before any API server is rolled back.
const StepProxy = "upgrade.proxy"

// RollBackProxy is the module that gives kube-proxy an older version before API servers
// get it: kube-proxy must not be newer than an API server that it uses. A node on which
// the rollout fails, which may be the reason for the rollback, does not block it.
func RollBackProxy(env module.Env) engine.Module {
	const kind, name = "DaemonSet", "kube-proxy"
	return engine.Module{Name: "proxy", Tasks: []engine.Task{
		rollBackTask(StepProxy, "roll back kube-proxy", kind, name, env.Release.ImageRefs()[name],
			func(ctx context.Context, s *engine.Scope) error {
				bounded, cancel := context.WithTimeout(ctx, proxyTime)
				defer cancel()
				err := engine.GetValue(s, module.KeyKube).Workloads().WaitRollout(bounded, kind, namespace, name,
					func(m string) { s.ShowProgress("%s", m) })
				if err != nil && ctx.Err() == nil {
					s.ShowProgress("continuing without it: %v", err)
				}
				return ctx.Err()
			}),
	}}
}

// proxyTime is the timeout for the rollback of kube-proxy.
const proxyTime = 3 * time.Minute

// namespace is the namespace of the components that kubeadm installs.
const namespace = "kube-system"

// rollBackTask gives a component of kubeadm the image of an older version.
func rollBackTask(id, title, kind, name, image string, then func(context.Context, *engine.Scope) error) engine.Task {
	return engine.Task{
		ID: id, Title: title, Manager: true, Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				back := []plan.OpChange{{Kind: module.KindObject, Target: kind + " " + namespace + "/" + name, Summary: "set image " + image}}
				client := engine.GetValue(s, module.KeyKube)
				if client == nil {
					return back, nil
				}
				is, err := client.Workloads().GetImage(ctx, kind, namespace, name, name)
				if is == "" || is == image || err != nil {
					return nil, err
				}
				return back, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				err := engine.GetValue(s, module.KeyKube).Workloads().SetImage(ctx, kind, namespace, name, name, image)
				if err != nil || then == nil {
					return err
				}
				return then(ctx, s)
			},
		},
	}
}

// WaitDaemonSets is the module that waits until the DaemonSets on all nodes have their new
// version.
func WaitDaemonSets(env module.Env) engine.Module {
	var sets [][2]string
	if env.Cluster.Spec.Kubernetes.ProxyMode != "none" {
		sets = append(sets, [2]string{"kube-system", "kube-proxy"})
	}
	if env.Cluster.Spec.Network.Plugin == "flannel" {
		sets = append(sets, [2]string{"kube-flannel", "kube-flannel"})
	}
	return engine.Module{Name: "settle", Tasks: []engine.Task{{
		ID: "upgrade.settled", Title: "wait for DaemonSets", Manager: true, Timeout: 10 * time.Minute,
		Consumes: []engine.KeyRef{module.KeyKube.Ref()}, Needs: []string{"kubeadm.init.addon-proxy"},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				client := engine.GetValue(s, module.KeyKube)
				var waits []plan.OpChange
				for _, set := range sets {
					if client != nil {
						missing, err := client.Workloads().RolloutPending(ctx, "DaemonSet", set[0], set[1])
						var known *kube.Error
						if err != nil && (!errors.As(err, &known) || known.Reason != kube.ReasonNotFound) {
							return nil, err
						}
						if err == nil && missing == "" {
							continue
						}
					}
					waits = append(waits, plan.OpChange{Kind: "wait", Target: set[1], Summary: "on all nodes"})
				}
				return waits, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				for _, set := range sets {
					err := engine.GetValue(s, module.KeyKube).Workloads().WaitRollout(ctx, "DaemonSet", set[0], set[1],
						func(m string) { s.ShowProgress("%s", m) })
					if err != nil {
						return err
					}
				}
				return nil
			},
		},
	}}}
}
