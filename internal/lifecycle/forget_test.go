package lifecycle

import (
	"strings"
	"sync/atomic"
	"testing"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

// A host whose node still reports to the cluster cannot be force-removed without --force.
// The refusal comes before any change, whatever keeps the manager from using the host.
func TestForgetNode_RefusedWhileNodeReports(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		host         string
		breaks       func(*world, *lifecycletest.Host)
		change       func(*DeleteNodesRequest)
		refused      bool
	}{
		{"cut off", "a firewall stands in the way", "w1", func(_ *world, m *lifecycletest.Host) { m.Down = errDown }, nil, true},
		{
			"without the others", "--ignore-errors does not help", "w1", func(_ *world, m *lifecycletest.Host) { m.Down = errDown },
			func(r *DeleteNodesRequest) { r.IgnoreErrors = true }, true,
		},
		{
			"unfit", "it belongs to another cluster", "w1",
			func(_ *world, m *lifecycletest.Host) { m.Cluster, m.HasLedger = "other", true }, nil, true,
		},
		{
			"a control plane", "its etcd member is kept", "cp2", func(_ *world, m *lifecycletest.Host) { m.Down = errDown },
			func(r *DeleteNodesRequest) { r.IgnoreErrors = true }, true,
		},
		{
			"forced", "it is known to run", "w1", func(_ *world, m *lifecycletest.Host) { m.Down = errDown },
			func(r *DeleteNodesRequest) { r.Removal.Force = true }, false,
		},
		{
			"dead", "the cluster has noticed", "w1",
			func(w *world, m *lifecycletest.Host) { m.Down = errDown; w.API.MarkNodeLost("w1") }, nil, false,
		},
		{
			"no node", "the cluster has no node of that name", "w1",
			func(w *world, m *lifecycletest.Host) { m.Down = errDown; w.API.DeleteNode("w1") }, nil, false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, threeAndTwo, threeAndTwo)
			tc.breaks(w, w.Hosts[tc.host])
			var touched atomic.Value // several hosts change at once
			for _, m := range w.Hosts {
				m.OnChange = func(what string) { touched.Store(what) }
			}
			r := DeleteNodesRequest{Name: "prod", Nodes: []string{tc.host, "w2"}, Forget: true}
			if tc.change != nil {
				tc.change(&r)
			}
			p, err := w.service().Prepare(t.Context(), r, nil)
			if !tc.refused {
				w.apply(w.prepared(p, err), event.Succeeded)
				if w.API.HasObject("/api/v1/nodes/" + tc.host) {
					t.Errorf("%s is still a node: %s", tc.host, tc.reason)
				}
				return
			}
			refusal(t, err, "host-runs")
			if err != nil &&
				(!strings.Contains(err.Error(), "--force") || !strings.Contains(err.Error(), "40 seconds") ||
					strings.Count(err.Error(), "hint:") != 1) {
				t.Errorf("the refusal does not have one hint: %v", err)
			}
			if what := touched.Load(); what != nil || w.API.EtcdRole("cp2") != lifecycletest.EtcdVoter {
				t.Errorf("%v was changed: %s", what, tc.reason)
			}
		})
	}
}

// The cluster rejects a force-removed machine even if its node was deleted before, because
// the saved state has its machine id.
func TestForgetNode_RejectsMachineOfDeletedNode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		silent       bool // while it is planned
		few          bool
	}{
		{"the API answers", "only the policy has to change", false, false},
		{"the API does not answer", "it is queried later", true, false},
		{"large cluster", "its status does not list ready nodes", false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, []string{"cp1", "w1", "w2"}, []string{"cp1", "w1", "w2"})
			if tc.few {
				w.hideNodes()
			}
			w.Hosts["w1"].Down = errDown
			w.API.DeleteNode("w1")
			w.do(despiteErrors(applying(w.tuned("cp1", "w1", "w2"))), event.Partial)
			w.Hosts["cp1"].APISilent = tc.silent
			p := w.prepared(w.service().Prepare(t.Context(),
				DeleteNodesRequest{Name: "prod", Nodes: []string{"w1"}, Forget: true}, nil))
			w.Hosts["cp1"].APISilent = false
			w.apply(p, event.Succeeded)
			if ids := w.forgotten(); ids != "id-w1" {
				t.Errorf("the cluster rejects %q, want the machine of w1: %s", ids, tc.reason)
			}
		})
	}
}

// Another machine answers at the address of a host to remove: the host was reinstalled, or
// its address was reassigned. The node of the previous machine is force-removed, unless it
// runs.
func TestRemoveNode_AnotherMachineAtItsAddress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		host         string
		runs         bool
		change       func(*DeleteNodesRequest)
		refused      bool
	}{
		{"a control plane that runs", "its etcd member would be removed", "cp3", true, nil, true},
		{"without the others", "--ignore-errors does not help", "cp3", true, func(r *DeleteNodesRequest) { r.IgnoreErrors = true }, true},
		{"with --forget", "it is reachable", "w1", true, func(r *DeleteNodesRequest) { r.Forget = true }, true},
		{"forced", "it is known to run", "w1", true, func(r *DeleteNodesRequest) { r.Removal.Force = true }, false},
		{"reinstalled", "the previous machine is lost", "w1", false, nil, false},
		{"reinstalled, force-removed", "the result is the same", "w1", false, func(r *DeleteNodesRequest) { r.Forget = true }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, threeAndTwo, threeAndTwo)
			m := lifecycletest.NewHost(tc.host, w.Hosts[tc.host].Address, w.API)
			m.MachineID = "id-new"
			w.Hosts[tc.host] = m
			if !tc.runs {
				w.API.MarkNodeLost(tc.host)
			}
			r := DeleteNodesRequest{Name: "prod", Nodes: []string{tc.host, "w2"}}
			if tc.change != nil {
				tc.change(&r)
			}
			p, err := w.service().Prepare(t.Context(), r, nil)
			if tc.refused {
				if refusal(t, err, "host-runs"); err != nil && !strings.Contains(err.Error(), "machine id id-"+tc.host) {
					t.Errorf("the refusal does not name the running machine: %v", err)
				}
				return
			}
			w.apply(w.prepared(p, err), event.Succeeded)
			if w.API.HasObject("/api/v1/nodes/" + tc.host) {
				t.Errorf("%s is still a node: %s", tc.host, tc.reason)
			}
			if ids := w.forgotten(); ids != "id-"+tc.host {
				t.Errorf("the cluster rejects %q, want the previous machine: %s", ids, tc.reason)
			}
			w.do(AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{w.flag(tc.host)}}, event.Succeeded)
			w.wantHosts("cp1", "cp2", "cp3", "w1")
		})
	}
}

// givenUp returns clusters in which a host with an etcd member is permanently lost, and
// the request that removes it. One cluster is in the middle of an upgrade, the other has
// managed etcd.
func givenUp() map[string]func(t *testing.T) (w *world, host string, gone Request) {
	forget := func(host string) Request {
		return DeleteNodesRequest{Name: "prod", Nodes: []string{host}, Forget: true}
	}
	return map[string]func(*testing.T) (*world, string, Request){
		"during an upgrade": func(t *testing.T) (*world, string, Request) {
			w := aged(t, threeAndTwo...)
			w.refusing("w1", "kubelet.running")
			w.do(toNewest, event.Failed)
			w.Hosts["w1"].Refuse = nil
			w.Hosts["cp3"].Down = errDown
			w.API.StopMember("cp3")
			w.API.MarkNodeLost("cp3")
			return w, "cp3", forget("cp3")
		},
		"a host for etcd": func(t *testing.T) (*world, string, Request) {
			w := withMembers(t, "cp1", "e1", "w1")
			w.Hosts["e1"].Down = errDown // its member still serves
			return w, "e1", forget("e1")
		},
	}
}

// isMember reports whether etcd counts a host as a member.
func (w *world) isMember(host string) bool {
	if w.ManagedEtcd {
		_, is := w.API.ManagedEtcd.Votes[host]
		return is
	}
	return w.API.EtcdRole(host) != ""
}

// A lost host is kept in state as long as etcd has its member.
func TestForgetNode_RemovesEtcdMemberFirst(t *testing.T) {
	t.Parallel()
	for name, given := range givenUp() {
		t.Run(name, func(t *testing.T) {
			w, host, gone := given(t)
			w.Hosts["cp1"].Refuse = func(step string, o op.Op) *op.Error {
				if _, ok := o.(op.EtcdRemove); !ok {
					return nil
				}
				return &op.Error{Reason: "Timeout", Message: step + ": etcd does not answer in time"}
			}
			w.do(gone, event.Failed)
			w.Hosts["cp1"].Refuse = nil
			c, err := w.service().Records.Clusters().Load(t.Context(), "prod")
			if err != nil {
				t.Fatal(err)
			}
			if !w.isMember(host) || spec.FindHost(c.Spec.Hosts, host) < 0 {
				t.Errorf("%s is a member: %t, and in state: %t", host, w.isMember(host), spec.FindHost(c.Spec.Hosts, host) >= 0)
			}
			w.resume(event.Succeeded)
			if w.isMember(host) {
				t.Errorf("%s is still an etcd member", host)
			}
		})
	}
}

// A force-removal that was killed at any moment can be resumed, and no member is left.
func TestForgetNode_ResumesAfterKill(t *testing.T) {
	t.Parallel()
	for name, given := range givenUp() {
		w, host, gone := given(t)
		for _, m := range w.killed(t, gone) {
			t.Run(name+" "+m.name, func(t *testing.T) {
				k := m.world
				k.useT(t)
				k.Hosts[host].Down = errDown
				c, err := k.service().Records.Clusters().Load(t.Context(), "prod")
				if err != nil {
					t.Fatal(err)
				}
				if k.isMember(host) && spec.FindHost(c.Spec.Hosts, host) < 0 {
					t.Errorf("%s is an etcd member, but not in state", host)
				}
				o, err := k.service().past.Unfinished(t.Context(), "prod")
				if err == nil && operation.Kind(o.Spec.Kind) == operation.Upgrade { // the removal has not begun, or is complete
					if spec.FindHost(c.Spec.Hosts, host) >= 0 {
						k.do(gone, event.Succeeded)
					}
				} else {
					k.goOn(gone)
				}
				if k.isMember(host) {
					t.Errorf("%s is still an etcd member", host)
				}
				k.same(w)
			})
		}
	}
}

// TestForgetNode_IgnoresForeignMachineID: a kubelet may report the ids of other machines. The cluster
// does not reject these machines.
func TestForgetNode_IgnoresForeignMachineID(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, reports, want string }{
		{"its own", "id-w1", "id-w1"},
		{"another node's", "id-cp1", ""},
		{"several", "id-w1,id-cp1,id-cp2", ""},
		{"text for the policy", `"] || true || x in ["`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, threeAndTwo, threeAndTwo)
			w.Hosts["w1"].Down = errDown
			w.API.MarkNodeLost("w1")
			node := w.API.Objects["/api/v1/nodes/w1"]
			reported := object{"status": object{"nodeInfo": object{"machineID": tc.reports}}}
			w.API.PutObject("/api/v1/nodes/w1", lifecycletest.MergePatch(node, reported))
			w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"w1"}, Forget: true}, event.Succeeded)
			if w.API.HasObject("/api/v1/nodes/w1") {
				t.Error("w1 is still a node")
			}
			if got := w.forgotten(); got != tc.want {
				t.Errorf("the cluster rejects %q, want %q", got, tc.want)
			}
		})
	}
}
