package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
)

const cpuState = "/var/lib/kubelet/cpu_manager_state"

// keepsCPUs plays kubelets that keep the policy of their CPU manager in a file, as of
// Kubernetes 1.37. A kubelet with another policy than its file does not start. Nor does a
// kubelet with the static policy and no reserved CPUs.
func (w *world) keepsCPUs() {
	for _, m := range w.Hosts {
		m.Files[cpuState] = "none"
		m.Spoil = func(m *lifecycletest.Host, _ string, o op.Op) *op.Error {
			if o.Target() != "kubelet.service" {
				return nil
			}
			settings, policy, refusal := m.Files["/etc/kubernetes/kubelet.conf.d/50-slipway.conf"], "none", ""
			if strings.Contains(settings, "cpuManagerPolicy: static") {
				policy = "static"
			}
			was, kept := m.Files[cpuState]
			switch {
			case policy == "static" && !strings.Contains(settings, "kubeReserved"):
				refusal = "the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
			case kept && was != policy:
				refusal = fmt.Sprintf("configured policy %q differs from state checkpoint policy %q", policy, was)
			}
			if refusal != "" {
				delete(m.State, "kubelet.service started")
				return &op.Error{Reason: op.ReasonUnhealthy, Message: "kubelet.service says: " + refusal}
			}
			m.Files[cpuState] = policy
			return nil
		}
	}
}

func (w *world) staticCPUs(reserved string) *v1alpha1.Cluster {
	c := w.Manifest()
	c.Spec.Kubernetes.Kubelet.Config = map[string]any{"cpuManagerPolicy": "static"}
	if reserved != "" {
		c.Spec.Kubernetes.Kubelet.Config["kubeReserved"] = map[string]any{"cpu": reserved}
	}
	return c
}

// allInService checks that all nodes are in service.
func (w *world) allInService() {
	w.t.Helper()
	w.API.Mu.Lock()
	defer w.API.Mu.Unlock()
	for name := range w.Hosts {
		spec, _ := w.API.Objects["/api/v1/nodes/"+name]["spec"].(object)
		if _, cordoned := spec["unschedulable"]; cordoned {
			w.t.Errorf("%s is cordoned", name)
		}
	}
}

// policies returns the policies in the state files of the kubelets.
func (w *world) policies() map[string]string {
	out := map[string]string{}
	for name, m := range w.Hosts {
		out[name] = m.Files[cpuState]
	}
	return out
}

// inTurn returns the hosts of finished steps, in order.
func (w *world) inTurn(steps ...string) (out []string) {
	for _, e := range w.events {
		if e.Type == event.StepFinished && e.Outcome == event.Changed && slices.Contains(steps, e.Task) {
			out = append(out, e.Task+" "+e.Host)
		}
	}
	return out
}

// TestCPUPolicy_ChangesOneDrainedNodeAtATime: each node is drained, loses the file, and is back in service
// before the next one is drained. This holds for both directions.
func TestCPUPolicy_ChangesOneDrainedNodeAtATime(t *testing.T) {
	t.Parallel()
	hosts := []string{"cp1", "w1", "w2"}
	w := newWorld(t, hosts...)
	w.create(event.Succeeded)
	w.keepsCPUs()
	for _, policy := range []string{"static", "none"} {
		c := w.Manifest()
		if policy == "static" {
			c = w.staticCPUs("500m")
		}
		p := w.prepared(w.service().Prepare(t.Context(), applying(c), nil))
		var told, want []string
		for _, s := range p.Plan().Steps {
			for _, c := range s.Changes {
				if s.Task == "settings.drain" || c.Kind == op.KindUnit {
					told = append(told, s.Host+" "+c.Summary)
				}
			}
		}
		for _, name := range hosts {
			want = append(want, name+" cordon, and move its pods to other nodes, because its kubelet starts without its state",
				name+" restart: /etc/kubernetes/kubelet.conf.d/50-slipway.conf changes, remove "+cpuState)
		}
		slices.Sort(told) // steps of one task are listed together
		slices.Sort(want)
		if d := cmp.Diff(want, told); d != "" {
			t.Errorf("%s: changes of the plan (-want +got):\n%s", policy, d)
		}
		w.events = nil
		w.apply(p, event.Succeeded)
		want = nil
		steps := []string{"settings.drain", "kubelet.settings", "settings.uncordon"}
		for _, name := range hosts {
			for _, step := range steps {
				want = append(want, step+" "+name)
			}
		}
		if d := cmp.Diff(want, w.inTurn(steps...)); d != "" {
			t.Errorf("%s: one node after the other (-want +got):\n%s", policy, d)
		}
		if d := cmp.Diff(all(hosts, policy), w.policies()); d != "" {
			t.Errorf("%s: policies (-want +got):\n%s", policy, d)
		}
		w.settled(c)
		w.allInService()
	}
}

// TestCPUPolicy_DrainsNoNodeForOtherSettings: other settings drain no node and remove no file, also with the static
// policy.
func TestCPUPolicy_DrainsNoNodeForOtherSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	w.keepsCPUs()
	w.do(applying(w.staticCPUs("500m")), event.Succeeded)
	c := w.staticCPUs("500m")
	c.Spec.Kubernetes.Kubelet.Config["maxPods"] = float64(50)
	p := w.prepared(w.service().Prepare(t.Context(), applying(c), nil))
	if at := slices.IndexFunc(p.Plan().Steps, func(s plan.Step) bool {
		return strings.HasPrefix(s.Task, "settings.") ||
			slices.ContainsFunc(s.Changes, func(c plan.OpChange) bool { return strings.Contains(c.Summary, cpuState) })
	}); at >= 0 {
		t.Errorf("the plan has %+v", p.Plan().Steps[at])
	}
	w.apply(p, event.Succeeded)
}

// TestCPUPolicy_RolledBackWhenRefused: a policy that a kubelet refuses is rolled back. No node keeps a
// state file of it, and all nodes are in service.
func TestCPUPolicy_RolledBackWhenRefused(t *testing.T) {
	t.Parallel()
	hosts := []string{"cp1", "w1", "w2"}
	for _, tc := range []struct{ name, host, says string }{
		{"refused at the first", "cp1", "requires systemreserved.cpu"},
		{"refused by the last", "w2", "it has no such CPUs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, hosts...)
			w.create(event.Succeeded)
			w.keepsCPUs()
			c := w.staticCPUs("")
			if tc.host == "w2" {
				c = w.staticCPUs("500m")
				kubelet := w.Hosts["w2"].Spoil
				w.Hosts["w2"].Spoil = func(m *lifecycletest.Host, step string, o op.Op) *op.Error {
					if err := kubelet(m, step, o); err != nil || o.Target() != "kubelet.service" || m.Files[cpuState] != "static" {
						return err
					}
					delete(m.State, "kubelet.service started")
					return &op.Error{Reason: op.ReasonUnhealthy, Message: "kubelet.service says: it has no such CPUs"}
				}
			}
			before := w.looks()
			res := w.do(applying(c), event.Failed)
			if f := res.Failures[0]; !res.Reverted || f.Host != tc.host || !strings.Contains(f.Message, tc.says) {
				t.Errorf("%+v: want a rollback, because %s reports %q", res.Failures, tc.host, tc.says)
			}
			w.asBefore(before)
			w.allInService()
		})
	}
}

// TestCPUPolicy_StartsStoppedKubeletAfterKill: a kubelet that was stopped for a change of the policy
// may still have its state file. It starts without that file after a resume or a rollback.
func TestCPUPolicy_StartsStoppedKubeletAfterKill(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"resume", "rollback"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, "cp1", "w1")
			w.create(event.Succeeded)
			w.keepsCPUs()
			before := w.looks()
			var killed *world
			w.Hosts["cp1"].OnChange = func(what string) {
				if what == "kubelet.settings kubelet.service" {
					killed = w.fork(t)
				}
			}
			w.do(applying(w.staticCPUs("500m")), event.Succeeded)
			delete(killed.Hosts["cp1"].State, "kubelet.service started")
			if how == "resume" {
				killed.resume(event.Succeeded)
			} else {
				killed.rollback(event.Succeeded)
			}
			killed.allInService()
			if how == "rollback" {
				killed.asBefore(before)
				return
			}
			killed.settled(killed.staticCPUs("500m"))
			if d := cmp.Diff(all([]string{"cp1", "w1"}, "static"), killed.policies()); d != "" {
				t.Errorf("policies (-want +got):\n%s", d)
			}
		})
	}
}

// TestCPUPolicy_DrainsForOtherSettingsUntilRolledBack: other settings drain no node once a failed policy is rolled
// back. Before that they do, because nodes may have files of either policy.
func TestCPUPolicy_DrainsForOtherSettingsUntilRolledBack(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name                 string
		keepFailed, rollback bool
		drains               bool
	}{
		{name: "reverted automatically"},
		{name: "rolled back", keepFailed: true, rollback: true},
		{name: "as it failed", keepFailed: true, drains: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1", "w1", "w2")
			w.create(event.Succeeded)
			w.keepsCPUs()
			w.do(ApplyRequest{Subject: Subject{Cluster: w.staticCPUs("")}, ApplyOptions: ApplyOptions{KeepFailed: tc.keepFailed}}, event.Failed)
			if tc.rollback {
				w.rollback(event.Succeeded)
			}
			c := w.Manifest()
			c.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": float64(50)}
			drains := slices.ContainsFunc(w.plan(c).Steps, func(s plan.Step) bool { return s.Task == "settings.drain" })
			if drains != tc.drains {
				t.Errorf("the plan drains nodes: %t, want %t", drains, tc.drains)
			}
		})
	}
}

// TestCPUPolicy_ResumesOrRollsBackAfterKill: a change of the policy that was killed at any moment is resumed or
// rolled back. No node remains cordoned or without its kubelet.
func TestCPUPolicy_ResumesOrRollsBackAfterKill(t *testing.T) {
	t.Parallel()
	hosts := []string{"cp1", "w1"}
	w := newWorld(t, hosts...)
	w.create(event.Succeeded)
	w.keepsCPUs()
	before := w.looks()
	for _, at := range w.killedWhile(t, func() { w.do(applying(w.staticCPUs("500m")), event.Succeeded) }) {
		for _, how := range []string{"resume", "rollback"} {
			t.Run(at.name+" "+how, func(t *testing.T) {
				k := at.world.fork(t)
				k.useT(t)
				k.goBack(t, how)
				k.allInService()
				if how == "rollback" {
					k.asBefore(before)
					return
				}
				if d := cmp.Diff(w.looks(), k.looks()); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
				k.settled(k.staticCPUs("500m"))
			})
		}
	}
}
