package lifecycle

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// reboots returns a request to reboot hosts; no names mean all hosts.
func reboots(nodes ...string) RebootNodesRequest {
	return RebootNodesRequest{Name: "prod", Nodes: nodes}
}

// wantBoots checks how often each machine was rebooted. Machines without a number were not.
func (w *world) wantBoots(want map[string]int) {
	w.t.Helper()
	got := map[string]int{}
	for name, m := range w.Hosts {
		if m.Boots > 0 {
			got[name] = m.Boots
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		w.t.Errorf("reboots (-want +got):\n%s", d)
	}
}

// once returns one reboot for each name.
func once(names ...string) map[string]int {
	out := map[string]int{}
	for _, n := range names {
		out[n] = 1
	}
	return out
}

// wantCordoned checks which nodes are cordoned.
func (w *world) wantCordoned(want ...string) {
	w.t.Helper()
	var got []string
	for name, version := range w.versions() {
		if strings.Contains(version, "cordoned") {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		w.t.Errorf("cordoned nodes (-want +got):\n%s", d)
	}
}

func TestRebootNodes_OneAfterTheOther(t *testing.T) {
	w := newWorld(t, threeAndTwo...)
	w.create(event.Succeeded)
	w.events = nil
	p := w.prepared(w.service().Prepare(t.Context(), reboots(), nil))
	var planned []string
	for _, s := range p.Plan().Steps {
		if s.Task == "reboot.host" {
			planned = append(planned, s.Host)
		}
	}
	if d := cmp.Diff(threeAndTwo, planned); d != "" {
		t.Errorf("the plan lists other nodes (-want +got):\n%s", d)
	}
	res := w.apply(p, event.Succeeded)
	if want := []string{"5 hosts rebooted: cp1, cp2, cp3, w1, w2"}; !slices.Equal(res.Ready, want) {
		t.Errorf("the summary is %q, want %q", res.Ready, want)
	}
	w.wantBoots(once(threeAndTwo...))
	var want, got []string
	for _, host := range threeAndTwo {
		want = append(want, "upgrade.drain "+host, "reboot.host "+host, "upgrade.uncordon "+host)
	}
	for _, e := range w.events {
		if e.Type == event.StepFinished && e.Outcome == event.Changed {
			got = append(got, e.Task+" "+e.Host)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want one host after the other, control planes first (-want +got):\n%s", d)
	}
	w.wantCordoned()
	w.whole()
	w.wantStatus(v1alpha1.PhaseRunning, "reboot-nodes Succeeded", "create Succeeded")

	w.do(reboots("w1"), event.Succeeded) // a later operation reboots again
	twice := once(threeAndTwo...)
	twice["w1"] = 2
	w.wantBoots(twice)
}

func TestRebootNodes_OnlyNamedHosts(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		nodes        []string
		down         string
		want         []string
	}{
		{"a worker", "no other worker is connected to", []string{"w1"}, "w2", []string{"w1"}},
		{"a control plane", "workers are not connected to", []string{"cp2"}, "w2", []string{"cp2"}},
		{"by role", "selectors work as for a removal", []string{"role=worker"}, "", []string{"w1", "w2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, threeAndTwo...)
			w.create(event.Succeeded)
			if tc.down != "" {
				w.Hosts[tc.down].Down = errDown
			}
			w.events = nil
			w.do(reboots(tc.nodes...), event.Succeeded)
			w.wantBoots(once(tc.want...))
			if d := cmp.Diff(tc.want, w.turns("upgrade.drain")); d != "" {
				t.Errorf("%s: drained nodes (-want +got):\n%s", tc.reason, d)
			}
			for _, e := range w.events {
				if e.Type == event.StepFinished && e.Outcome == event.Changed && !slices.Contains(tc.want, e.Host) {
					t.Errorf("%s: %s has changed %s", tc.reason, e.Task, e.Host)
				}
			}
		})
	}
}

// Hosts with only an etcd member are rebooted one at a time, after the control planes.
func TestRebootNodes_RebootsEtcdHosts(t *testing.T) {
	w := newWorld(t, "cp1", "e1", "e2", "e3", "w1", "w2")
	w.ManagedEtcd, w.SeparateEtcd = true, true
	w.create(event.Succeeded)
	w.events = nil
	w.do(reboots(), event.Succeeded)
	if d := cmp.Diff([]string{"cp1", "e1", "e2", "e3", "w1", "w2"}, w.turns("reboot.host")); d != "" {
		t.Errorf("order of the reboots (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"cp1", "w1", "w2"}, w.turns("upgrade.drain")); d != "" {
		t.Errorf("only nodes are drained (-want +got):\n%s", d)
	}
	w.whole()
}

// A node that the user has cordoned is drained and rebooted, and remains cordoned.
func TestRebootNodes_KeepsCordonOfUser(t *testing.T) {
	w := newWorld(t, "cp1", "w1", "w2")
	w.create(event.Succeeded)
	w.API.Mu.Lock()
	w.API.Objects["/api/v1/nodes/w1"]["spec"].(object)["unschedulable"] = true
	w.API.Mu.Unlock()
	w.do(reboots(), event.Succeeded)
	w.wantBoots(once("cp1", "w1", "w2"))
	w.wantCordoned("w1")
}

// As many workers are out of service at once as the limit allows.
func TestRebootNodes_KeepsToMaxUnavailable(t *testing.T) {
	w := newWorld(t, "cp1", "w1", "w2", "w3", "w4", "w5")
	w.create(event.Succeeded)
	r := reboots("w1", "w3", "w5", "w4")
	r.MaxUnavailable = "2"
	w.events = nil
	w.do(r, event.Succeeded)
	away, most := 0, 0
	for _, e := range w.events {
		if e.Type != event.StepFinished || e.Outcome != event.Changed {
			continue
		}
		switch e.Task {
		case "upgrade.drain":
			away++
		case "upgrade.uncordon":
			away--
		}
		most = max(most, away)
	}
	if away != 0 || most > 2 {
		t.Errorf("%d nodes were out of service at once, want at most 2; %d still are", most, away)
	}
	order := w.turns("reboot.host")
	slices.Sort(order[:2]) // the two of a wave have no order
	slices.Sort(order[2:])
	if d := cmp.Diff([]string{"w1", "w3", "w4", "w5"}, order); d != "" {
		t.Errorf("unnamed workers count in no wave (-want +got):\n%s", d)
	}
}

// A manager that is killed at any step is resumed, and no host is rebooted twice.
func TestRebootNodes_KilledAndResumedRebootsOnce(t *testing.T) {
	w := newWorld(t, "cp1", "w1", "w2")
	w.create(event.Succeeded)
	moments := w.killed(t, reboots())
	if len(moments) < 10/oneIn {
		t.Errorf("killed at %d moments", len(moments))
	}
	for _, m := range moments {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			k.goOn(reboots())
			k.wantBoots(once("cp1", "w1", "w2"))
			k.wantCordoned()
			k.whole()
			if _, ops := k.status(); ops[0] != "reboot-nodes Succeeded" {
				t.Errorf("operations %v", ops)
			}
		})
	}
}

// A disruption budget that allows no eviction stops the operation. The node remains cordoned
// until the operation is resumed.
func TestRebootNodes_StopsAtDisruptionBudgetAndResumes(t *testing.T) {
	const (
		pod    = "/api/v1/namespaces/shop/pods/web"
		budget = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/web"
	)
	w := newWorld(t, "cp1", "w1", "w2")
	w.create(event.Succeeded)
	w.API.OnWrite = func(what string) {
		if what != "PATCH /api/v1/nodes/w1" || w.API.HasObject(pod) {
			return
		}
		w.API.PutObject(pod, object{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": object{
				"name": "web", "namespace": "shop", "uid": "web", "labels": object{"app": "web"},
				"ownerReferences": []any{object{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "set", "controller": true}},
			},
			"spec": object{"nodeName": "w1"},
		})
		w.API.PutObject(budget, object{
			"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": object{"name": "web", "namespace": "shop"},
			"spec":   object{"selector": object{"matchLabels": object{"app": "web"}}},
			"status": object{"expectedPods": 2, "currentHealthy": 1, "desiredHealthy": 1},
		})
	}
	r := reboots()
	r.Removal = module.Removal{DrainTimeout: time.Second}
	res := w.do(r, event.Failed)
	if f := res.Failures[0]; f.Task != "upgrade.drain" || f.Host != "w1" || !strings.Contains(f.Message, "disruption budget") {
		t.Errorf("%+v", f)
	}
	w.wantBoots(once("cp1"))
	w.wantCordoned("w1")
	w.wantStatus(v1alpha1.PhaseRunning, "reboot-nodes Failed", "create Succeeded")
	_, err := w.service().PrepareRollback(t.Context(), RollbackRequest{Name: "prod"}, nil)
	refusal(t, err, idNoWayBack)

	w.API.OnWrite = nil
	w.API.RemoveObject(budget)
	w.resume(event.Succeeded)
	w.wantBoots(once("cp1", "w1", "w2"))
	w.wantCordoned()
	w.whole()
}

// A host that does not come back stops the operation. A resume does not reboot it again.
func TestRebootNodes_StopsAtHostThatDoesNotComeBack(t *testing.T) {
	w := newWorld(t, "cp1", "w1", "w2")
	w.create(event.Succeeded)
	w.Hosts["w1"].Spoil = func(m *lifecycletest.Host, _ string, o op.Op) *op.Error {
		if o.Kind() != op.KindReboot {
			return nil
		}
		m.Down = &remote.Error{Host: m.Name, Reason: remote.ConnectionLost, Cause: "no response within 10m0s", Remedy: "start it"}
		return nil
	}
	res := w.do(reboots(), event.Failed)
	if f := res.Failures[0]; f.Host != "w1" || f.Reason != string(remote.ConnectionLost) {
		t.Errorf("%+v", f)
	}
	w.wantBoots(once("cp1", "w1"))
	w.wantCordoned("w1")
	_, err := w.service().PrepareResume(t.Context(), resuming(), nil)
	refusal(t, err, string(remote.ConnectionLost))

	w.Hosts["w1"].Spoil, w.Hosts["w1"].Down = nil, nil
	w.resume(event.Succeeded)
	w.wantBoots(once("cp1", "w1", "w2"))
	w.wantCordoned()
}

// A resume leaves out a host that has left the cluster since the operation began.
func TestRebootNodes_ResumesWithoutHostThatLeft(t *testing.T) {
	w := newWorld(t, "cp1", "w1", "w2")
	w.create(event.Succeeded)
	w.refusing("w1", "reboot.host")
	w.do(reboots("w1", "w2"), event.Failed)
	if _, err := (savedstate.ModuleState{Records: w.service().Records}).TakeOff(t.Context(), "prod", "w1"); err != nil {
		t.Fatal(err)
	}
	w.resume(event.Succeeded)
	w.wantBoots(once("w2"))
}

func TestRebootNodes_Refuses(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		before       func(*world)
		request      RebootNodesRequest
		id           string
	}{
		{"an unknown host", "only hosts of the cluster are rebooted", nil, reboots("w1", "w9"), "unknown-host"},
		{
			"the machine of slipway", "the operation would end", func(w *world) { w.boot = w.Hosts["w1"].BootID() }, reboots(),
			idRebootsItself,
		},
		{
			"an unreachable control plane", "etcd could lose its quorum",
			func(w *world) { w.Hosts["cp2"].Down = errDown }, reboots("w1"), string(remote.Unreachable),
		},
		{
			"a node that is not ready", "harm could not be detected",
			func(w *world) { w.API.MarkNodeLost("w1") }, reboots("w1"), "upgrade-node-unready",
		},
		{
			"an unfinished operation", "only that operation knows what runs", func(w *world) {
				w.Hosts["w1"].Refuse = breaking("kubelet.settings")
				w.do(ApplyRequest{Subject: Subject{Cluster: w.changed()}}, event.Failed)
			}, reboots("w2"), idOperationUnfinished,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, threeAndTwo...)
			w.create(event.Succeeded)
			if tc.before != nil {
				tc.before(w)
			}
			_, err := w.service().Prepare(t.Context(), tc.request, nil)
			refusal(t, err, tc.id)
			w.wantBoots(map[string]int{})
		})
	}
	t.Run("other hosts than the machine of slipway", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1", "w2")
		w.create(event.Succeeded)
		w.boot = w.Hosts["w1"].BootID()
		w.do(reboots("w2"), event.Succeeded)
		w.wantBoots(once("w2"))
	})
}
