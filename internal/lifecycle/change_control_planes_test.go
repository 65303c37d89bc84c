package lifecycle

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// wantMembers checks that etcd has exactly these members, and that all of them vote.
func (w *world) wantMembers(names ...string) {
	w.t.Helper()
	if d := cmp.Diff(names, slices.Sorted(maps.Keys(w.API.Members))); d != "" {
		w.t.Errorf("etcd members (-want +got):\n%s", d)
	}
}

// TestRemoveControlPlanes_AndAddThemAgain removes control planes, one and several at once, also the first,
// and adds them again.
func TestRemoveControlPlanes_AndAddThemAgain(t *testing.T) {
	remove := func(nodes ...string) func(*world) Request {
		return func(*world) Request { return DeleteNodesRequest{Name: "prod", Nodes: nodes} }
	}
	for _, tc := range []struct {
		name    string
		request func(*world) Request
		hosts   []string
	}{
		{"a further one", remove("cp3"), []string{"cp1", "cp2", "w1", "w2"}},
		{"the first", remove("cp1"), []string{"cp2", "cp3", "w1", "w2"}},
		{"two at once, the first among them", remove("cp1", "cp2"), []string{"cp3", "w1", "w2"}},
		{
			"by a file, with a worker", func(w *world) Request { return applying(w.of("cp2", "cp3", "w1")) },
			[]string{"cp2", "cp3", "w1"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := running(t, threeAndTwo, threeAndTwo)
			w.do(tc.request(w), event.Succeeded)
			w.wantHosts(tc.hosts...)
			w.wantMembers(slices.DeleteFunc(slices.Clone(tc.hosts), func(n string) bool { return n[0] != 'c' })...)

			w.do(applying(w.Manifest()), event.Succeeded)
			w.wantHosts(threeAndTwo...)
			w.wantMembers("cp1", "cp2", "cp3")
		})
	}
}

// Settings reach all control planes and the settings in the cluster after the first
// control plane has left.
func TestApply_SettingsWithoutFirstControlPlane(t *testing.T) {
	t.Parallel()
	w := running(t, threeAndTwo, threeAndTwo)
	w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"cp1"}}, event.Succeeded)
	c := w.of("cp2", "cp3", "w1", "w2")
	c.Spec.Kubernetes.APIServer.ExtraArgs = map[string]string{"profiling": "false"}
	w.do(applying(c), event.Succeeded)
	for name, got := range map[string]string{
		"cp2": w.Hosts["cp2"].Files[module.APIServerManifest], "cp3": w.Hosts["cp3"].Files[module.APIServerManifest],
		"the record": w.API.Settings,
	} {
		if !strings.Contains(got, "name: profiling") {
			t.Errorf("%s does not have the new setting", name)
		}
	}
	p, err := w.service().Prepare(t.Context(), applying(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if !p.Plan().IsEmpty() {
		t.Error("a second apply changes something")
	}
}

// A control plane that has joined etcd does not start etcd without its data, neither
// during an operation nor at boot. It is removed and added again.
func TestStackedEtcd_DoesNotStartWithoutItsData(t *testing.T) {
	t.Parallel()
	w := running(t, threeAndTwo, threeAndTwo)
	for name, m := range w.Hosts {
		guarded := strings.Contains(m.Files["/etc/systemd/system/kubelet.service"],
			"ExecStartPre=/usr/bin/test -e "+facts.EtcdData+" -o ! -e "+facts.EtcdJoined+"\n")
		if is := name[0] == 'c'; m.HasFile(facts.EtcdJoined) != is || guarded != is {
			t.Errorf("%s has a member: %t, is known as one: %t, and its kubelet checks the data: %t", name, is, m.HasFile(facts.EtcdJoined), guarded)
		}
	}
	delete(w.Hosts["cp1"].Files, facts.EtcdData)
	w.Hosts["cp1"].APISilent = true
	w.API.StopMember("cp1")
	_, err := w.service().Prepare(t.Context(), applying(w.Manifest()), nil)
	refusal(t, err, "etcd-data-lost")
	w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"cp1"}}, event.Succeeded)
	w.wantHosts("cp2", "cp3", "w1", "w2")

	w.Hosts["cp1"].APISilent = false
	delete(w.API.Down, "cp1")
	w.do(applying(w.Manifest()), event.Succeeded)
	w.wantHosts(threeAndTwo...)
	w.wantMembers("cp1", "cp2", "cp3")
	if m := w.Hosts["cp1"]; !m.HasFile(facts.EtcdJoined) || !m.HasFile(facts.EtcdData) {
		t.Error("cp1 is not an etcd member again")
	}
}

// The last control plane joined the cluster once. Its etcd also gets new settings, though
// no other member can be asked, and others can join later.
func TestApply_SettingsOfLastEtcdMember(t *testing.T) {
	t.Parallel()
	w := running(t, threeAndTwo, threeAndTwo)
	w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"cp1", "cp2"}}, event.Succeeded)
	c := w.of("cp3", "w1", "w2")
	was := w.Hosts["cp3"].Files[lifecycletest.EtcdManifest]
	empty := func(when string) {
		t.Helper()
		if p := w.prepared(w.service().Prepare(t.Context(), applying(c), nil)); !p.Plan().IsEmpty() {
			t.Errorf("%s, apply would do %v", when, p.Plan().Steps)
		}
	}
	empty("all others have left")
	if w.Hosts["cp3"].Files[lifecycletest.EtcdManifest] != was {
		t.Error("its etcd manifest changed when others left")
	}
	c.Spec.Etcd.ExtraArgs = map[string]string{"quota-backend-bytes": "4294967296"}
	w.do(applying(c), event.Succeeded)
	if got := w.Hosts["cp3"].Files[lifecycletest.EtcdManifest]; !strings.Contains(got, "name: quota-backend-bytes") {
		t.Errorf("etcd does not have the new setting: %s", got)
	}
	empty("the settings are taken up")

	c = w.of("cp3", "cp1", "cp2", "w1", "w2")
	c.Spec.Etcd.ExtraArgs = map[string]string{"quota-backend-bytes": "4294967296"}
	w.do(applying(c), event.Succeeded)
	w.wantMembers("cp1", "cp2", "cp3")
	empty("three vote")
}

// The API server of a leaving host stops before its etcd member is removed, even if the
// kubelet does not stop the pod in time.
func TestRemoveControlPlane_StopsAPIServerBeforeEtcdMember(t *testing.T) {
	t.Parallel()
	for name, lingers := range map[string]bool{"it ends": false, "its kubelet does not end it": true} {
		t.Run(name, func(t *testing.T) {
			w := running(t, threeAndTwo, threeAndTwo)
			w.Hosts["cp1"].APILingers = lingers
			var mu sync.Mutex
			var steps []string
			for name, m := range w.Hosts {
				m.OnChange = func(what string) {
					step, _, _ := strings.Cut(what, " ")
					mu.Lock()
					defer mu.Unlock()
					steps = append(steps, step+" "+name)
				}
			}
			w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"cp1"}}, event.Succeeded)
			w.wantMembers("cp2", "cp3")
			begin, server, member := slices.Index(steps, "leave.begin cp1"), slices.Index(steps,
				"leave.server cp1"), slices.Index(steps, "leave.member cp2")
			if begin < 0 || member < max(begin, server) || lingers != (server > begin) {
				t.Errorf("the API server stops in step %d, the wait is step %d, and the etcd member is removed in step %d of %q",
					begin, server, member, steps)
			}
		})
	}
}

// A control plane that cannot be drained is not changed, even with --ignore-errors. The
// others leave.
func TestRemoveControlPlanes_KeepsUndrainedOne(t *testing.T) {
	t.Parallel()
	names := []string{"cp1", "cp2", "cp3", "cp4", "cp5", "w1"}
	w := running(t, names, names)
	before := w.Hosts["cp3"].AllState()
	w.API.GuardedNode = "cp3"
	w.do(DeleteNodesRequest{Name: "prod", Options: Options{IgnoreErrors: true}, Nodes: []string{"cp2", "cp3"}}, event.Partial)
	w.wantMembers("cp1", "cp3", "cp4", "cp5")
	w.wantRecords("cp1", "cp4", "cp5", "w1", "cp3") // cp3 still has to leave
	if d := cmp.Diff(before, w.Hosts["cp3"].AllState()); d != "" {
		t.Errorf("cp3 was not drained, and was touched (-before +after):\n%s", d)
	}
	w.API.GuardedNode = ""
	w.resume(event.Succeeded)
	w.wantHosts("cp1", "cp4", "cp5", "w1")
	w.wantMembers("cp1", "cp4", "cp5")
}

// A control plane that was blocked in the plan is not changed either, even if it could be
// drained by now.
func TestRemoveControlPlanes_KeepsOneBlockedInPlan(t *testing.T) {
	t.Parallel()
	names := []string{"cp1", "cp2", "cp3", "cp4", "cp5", "w1"}
	w := running(t, names, names)
	const pod = "/api/v1/namespaces/ns/pods/mine"
	w.API.PutObject(pod,
		object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "mine", "namespace": "ns"}, "spec": object{"nodeName": "cp3"}})
	w.API.Mu.Lock()
	w.API.Objects["/api/v1/nodes/cp3"]["spec"] = object{"unschedulable": true}
	w.API.Mu.Unlock()
	before := w.Hosts["cp3"].AllState()
	p := w.prepared(w.service().Prepare(t.Context(),
		DeleteNodesRequest{Name: "prod", Options: Options{IgnoreErrors: true}, Nodes: []string{"cp2", "cp3"}}, nil))
	if d := cmp.Diff([]string{"cp1", "cp2", "cp4", "cp5", "w1"}, touched(p.Plan())); d != "" {
		t.Errorf("hosts with steps (-want +got):\n%s", d)
	}
	w.API.RemoveObject(pod)
	w.apply(p, event.Partial)
	w.wantMembers("cp1", "cp3", "cp4", "cp5")
	if d := cmp.Diff(before, w.Hosts["cp3"].AllState()); d != "" {
		t.Errorf("cp3 was touched (-before +after):\n%s", d)
	}
}

// A machine with files of another owner is never changed, not even with --ignore-errors.
// Its etcd member is kept.
func TestRemoveNodes_KeepsForeignMachine(t *testing.T) {
	t.Parallel()
	w := running(t, threeAndTwo, threeAndTwo)
	m := w.Hosts["cp3"]
	m.HasLedger, m.Cluster = false, ""
	w.API.MarkNodeLost("cp3")
	before := m.AllState()
	m.OnChange = func(what string) { t.Errorf("the machine was changed: %s", what) }
	p, err := w.service().Prepare(t.Context(),
		DeleteNodesRequest{Name: "prod", Options: Options{IgnoreErrors: true}, Nodes: []string{"cp3", "w2"}}, nil)
	w.apply(w.prepared(p, err), event.Partial)
	w.wantMembers("cp1", "cp2", "cp3")
	if d := cmp.Diff(before, m.AllState()); d != "" {
		t.Errorf("the machine was changed (-before +after):\n%s", d)
	}
}

// A removal of the first control plane that was killed at any moment can be resumed, and
// does not change a host that is already reset.
func TestRemoveControlPlane_ResumesAfterKill(t *testing.T) {
	w := running(t, threeAndTwo[:4], threeAndTwo[:4])
	request := DeleteNodesRequest{Name: "prod", Nodes: []string{"cp1"}}
	for _, m := range w.killed(t, request) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			if cp1 := k.Hosts["cp1"]; !cp1.HasLedger {
				cp1.OnChange = func(what string) { t.Errorf("%s was reset, and changed again: %s", cp1.Name, what) }
			}
			k.goOn(request)
			k.wantHosts("cp2", "cp3", "w1")
			k.wantMembers("cp2", "cp3")
		})
	}
}

// An existing cluster is not initialized a second time, not even with --ignore-errors.
func TestExistingCluster_NotInitializedAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		request      func(*world) Request
		id           string
	}{
		{"swapped in the file", "the new one is blank, the old one leaves", func(w *world) Request {
			return applying(w.of("cp2", "w1"))
		}, idControlPlaneLost},
		{"another machine at its address", "it is blank", func(w *world) Request {
			w.Hosts["cp1"] = lifecycletest.NewHost("cp1", "192.0.2.11", w.API)
			w.Hosts["cp1"].MachineID = "id-new"
			return applying(w.of("cp1", "w1"))
		}, idControlPlaneLost},
		{"another machine, a worker comes", "the worker would join a new cluster", func(w *world) Request {
			w.Hosts["cp1"] = lifecycletest.NewHost("cp1", "192.0.2.11", w.API)
			w.Hosts["cp1"].MachineID = "id-new"
			return AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{w.flag("w2")}}
		}, idControlPlaneLost},
		{"it does not answer", "the unreachable host is the reason", func(w *world) Request {
			w.Hosts["cp1"].Down = errDown
			return applying(w.of("cp1", "w1"))
		}, string(remote.Unreachable)},
		{"it does not answer, a blank one comes before it", "the control plane with the cluster is required", func(w *world) Request {
			w.Hosts["cp1"].Down = errDown
			c := w.of("cp1", "cp2", "w1")
			slices.Reverse(c.Spec.Hosts[:2])
			return applying(c)
		}, string(remote.Unreachable)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1", "cp2", "w1", "w2")
			c := w.of("cp1", "w1")
			c.Spec.ControlPlaneEndpoint.Mode = v1alpha1.EndpointHAProxy // so that more control planes can join
			w.do(creating(c), event.Succeeded)
			r := tc.request(w)
			for _, r := range []Request{r, despiteErrors(r)} {
				_, err := w.service().Prepare(t.Context(), r, nil)
				refusal(t, err, tc.id)
			}
		})
	}
}

// A dead control plane is force-removed; a live one cannot be removed before it.
func TestRemoveControlPlane_DeadOneFirst(t *testing.T) {
	t.Parallel()
	w := running(t, threeAndTwo[:4], threeAndTwo[:4])
	w.Hosts["cp1"].Down = errDown
	w.API.StopMember("cp1")
	_, err := w.service().Prepare(t.Context(),
		DeleteNodesRequest{Name: "prod", Options: Options{IgnoreErrors: true}, Nodes: []string{"cp2"}}, nil)
	if err == nil || !strings.Contains(err.Error(), "etcd-quorum") {
		t.Errorf("a live member is removed while another is dead: %v", err)
	}
	w.API.MarkNodeLost("cp1")
	w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"cp1"}, Forget: true}, event.Succeeded)
	w.wantHosts("cp2", "cp3", "w1")
	w.wantMembers("cp2", "cp3")
}

// Another machine replaces the first control plane.
func TestReplaceControlPlane_WorksForLostFirstControlPlane(t *testing.T) {
	t.Parallel()
	w := running(t, threeAndTwo[:4], threeAndTwo[:4])
	w.Hosts["cp1"] = lifecycletest.NewHost("cp1", "192.0.2.31", w.API)
	w.Hosts["cp1"].MachineID = "id-new"
	w.API.MarkNodeLost("cp1")
	w.API.StopMember("cp1")
	w.do(applying(w.Manifest()), event.Succeeded)
	w.wantHosts(threeAndTwo[:4]...)
	w.wantMembers("cp1", "cp2", "cp3")
	if got := w.API.Objects["/api/v1/nodes/cp1"]["status"].(object)["nodeInfo"].(object)["machineID"]; got != "id-new" {
		t.Errorf("node cp1 is machine %v", got)
	}
}

// A machine that was lost while it joined leaves a learner in etcd. The learner does not
// block other joins once the machine is force-removed or unknown.
func TestLearnerOfLostMachine_DoesNotBlockJoins(t *testing.T) {
	for _, tc := range []struct {
		name, learner string
		request       func(*world) Request
		hosts         []string
	}{
		{"force-removed and replaced", "cp3", func(w *world) Request {
			return ApplyRequest{Subject: Subject{Cluster: w.of("cp1", "cp2", "cp4", "w1")}, ApplyOptions: ApplyOptions{Forget: true}}
		}, []string{"cp1", "cp2", "cp4", "w1"}},
		{"force-removed", "cp3", func(*world) Request {
			return DeleteNodesRequest{Name: "prod", Nodes: []string{"cp3"}, Forget: true}
		}, []string{"cp1", "cp2", "w1"}},
		{"unknown learner", "cp9", func(w *world) Request {
			w.Hosts["cp3"].Down, w.Hosts["cp3"].Refuse = nil, nil
			return applying(w.of("cp1", "cp2", "cp3", "w1"))
		}, []string{"cp1", "cp2", "cp3", "w1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := running(t, []string{"cp1", "cp2", "cp3", "cp4", "w1"}, []string{"cp1", "cp2", "w1"})
			w.Hosts["cp3"].Refuse = breaking("join.etcd")
			w.do(applying(w.of("cp1", "cp2", "cp3", "w1")), event.Failed)
			w.Hosts["cp3"].Down = errDown
			w.API.SetEtcdRole(tc.learner, lifecycletest.EtcdLearner)
			w.API.StopMember(tc.learner)
			w.do(tc.request(w), event.Succeeded)
			w.wantHosts(tc.hosts...)
			w.wantMembers(slices.DeleteFunc(slices.Clone(tc.hosts), func(n string) bool { return n[0] != 'c' })...)
		})
	}
}
