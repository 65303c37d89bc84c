package lifecycle

import (
	"strings"
	"sync/atomic"
	"testing"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

// A host that is given up, and of which the cluster hears, is refused before
// anything is touched: it runs, whatever keeps it from being asked.
func TestForgetWhatRuns(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		host         string
		breaks       func(*world, *machine)
		change       func(*Request)
		refused      bool
	}{
		{"cut off", "a firewall stands in the way", "w1", func(_ *world, m *machine) { m.down = errDown }, nil, true},
		{
			"without the others", "they go without it in vain", "w1", func(_ *world, m *machine) { m.down = errDown },
			func(r *Request) { r.IgnoreErrors = true }, true,
		},
		{"unfit", "it answers, and is not what it was", "w1", func(_ *world, m *machine) { m.cluster, m.ledger = "other", true }, nil, true},
		{
			"a control plane", "its member stays", "cp2", func(_ *world, m *machine) { m.down = errDown },
			func(r *Request) { r.IgnoreErrors = true }, true,
		},
		{
			"forced", "it is known to run", "w1", func(_ *world, m *machine) { m.down = errDown },
			func(r *Request) { r.Removal.Force = true }, false,
		},
		{"dead", "the cluster has noticed", "w1", func(w *world, m *machine) { m.down = errDown; w.api.lose("w1") }, nil, false},
		{"no node any more", "nobody runs by that name", "w1", func(w *world, m *machine) { m.down = errDown; w.api.drop("w1") }, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, threeAndTwo, threeAndTwo)
			tc.breaks(w, w.machines[tc.host])
			var touched atomic.Value // several are at once
			for _, m := range w.machines {
				m.touched = func(what string) { touched.Store(what) }
			}
			r := Request{Kind: operation.DeleteNodes, Name: "prod", Nodes: []string{tc.host, "w2"}, Forget: true}
			if tc.change != nil {
				tc.change(&r)
			}
			p, err := w.service().Prepare(t.Context(), r, nil)
			if !tc.refused {
				w.apply(w.prepared(p, err), event.Succeeded)
				if w.api.has("/api/v1/nodes/" + tc.host) {
					t.Errorf("%s is still a node: %s", tc.host, tc.reason)
				}
				return
			}
			refusal(t, err, "host-runs")
			if err != nil &&
				(!strings.Contains(err.Error(), "--force") || !strings.Contains(err.Error(), "40 seconds") ||
					strings.Count(err.Error(), "hint:") != 1) {
				t.Errorf("the refusal does not say what to do, once: %v", err)
			}
			if what := touched.Load(); what != nil || w.api.etcd("cp2") != etcdVotes {
				t.Errorf("%v was touched: %s", what, tc.reason)
			}
		})
	}
}

// The cluster turns a machine away that was given up, though its node was deleted
// before: the record knows which it was.
func TestForgetWithoutANode(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		silent       bool // when it is planned
	}{
		{"the API answers", "the policy is all that is to be done", false},
		{"it does not", "it is asked later", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, []string{"cp1", "w1", "w2"}, []string{"cp1", "w1", "w2"})
			w.machines["w1"].down = errDown
			w.api.drop("w1")
			w.do(Request{Kind: operation.Apply, Cluster: w.tuned("cp1", "w1", "w2"), IgnoreErrors: true}, event.Partial)
			w.machines["cp1"].silent = tc.silent
			p := w.prepared(w.service().Prepare(t.Context(),
				Request{Kind: operation.DeleteNodes, Name: "prod", Nodes: []string{"w1"}, Forget: true}, nil))
			w.machines["cp1"].silent = false
			w.apply(p, event.Succeeded)
			if ids := w.forgotten(); ids != "id-w1" {
				t.Errorf("the cluster turns away %q, want the machine that was w1: %s", ids, tc.reason)
			}
		})
	}
}

// Another machine answers at the address of a host that is taken off: installed
// anew, or reached by an address that is somebody else's now. The node is that
// of the machine before, which is given up, unless it runs.
func TestLeavesBehindAnotherMachine(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		host         string
		runs         bool
		change       func(*Request)
		refused      bool
	}{
		{"a control plane that runs", "its member would go", "cp3", true, nil, true},
		{"without the others", "they go without it in vain", "cp3", true, func(r *Request) { r.IgnoreErrors = true }, true},
		{"to be given up if it is gone", "it is not", "w1", true, func(r *Request) { r.Forget = true }, true},
		{"forced", "it is known to run", "w1", true, func(r *Request) { r.Removal.Force = true }, false},
		{"installed anew", "what was there is lost", "w1", false, nil, false},
		{"installed anew, given up", "that says the same", "w1", false, func(r *Request) { r.Forget = true }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, threeAndTwo, threeAndTwo)
			m := newMachine(tc.host, w.machines[tc.host].address, w.api)
			m.machineID = "id-new"
			w.machines[tc.host] = m
			if !tc.runs {
				w.api.lose(tc.host)
			}
			r := Request{Kind: operation.DeleteNodes, Name: "prod", Nodes: []string{tc.host, "w2"}}
			if tc.change != nil {
				tc.change(&r)
			}
			p, err := w.service().Prepare(t.Context(), r, nil)
			if tc.refused {
				if refusal(t, err, "host-runs"); err != nil && !strings.Contains(err.Error(), "machine id id-"+tc.host) {
					t.Errorf("the refusal does not say which machine runs: %v", err)
				}
				return
			}
			w.apply(w.prepared(p, err), event.Succeeded)
			if w.api.has("/api/v1/nodes/" + tc.host) {
				t.Errorf("%s is still a node: %s", tc.host, tc.reason)
			}
			if ids := w.forgotten(); ids != "id-"+tc.host {
				t.Errorf("the cluster turns away %q, want the machine before: %s", ids, tc.reason)
			}
			w.do(Request{Kind: operation.AddNodes, Name: "prod", Hosts: []spec.HostFlag{w.flag(tc.host)}}, event.Succeeded)
			w.wantHosts("cp1", "cp2", "cp3", "w1")
		})
	}
}

// givenUp are clusters with a host that has a member of etcd and is gone for good, and
// the request that takes it off: in the midst of an upgrade, and of an etcd of its own.
func givenUp(t *testing.T) map[string]func() (w *world, host string, gone Request) {
	forget := func(host string) Request {
		return Request{Kind: operation.DeleteNodes, Name: "prod", Nodes: []string{host}, Forget: true}
	}
	return map[string]func() (*world, string, Request){
		"in the midst of an upgrade": func() (*world, string, Request) {
			w := aged(t, threeAndTwo...)
			w.refusing("w1", "kubelet.running")
			w.do(toNewest, event.Failed)
			w.machines["w1"].refuse = nil
			w.machines["cp3"].down = errDown
			w.api.lost("cp3")
			w.api.lose("cp3")
			return w, "cp3", forget("cp3")
		},
		"a host for etcd": func() (*world, string, Request) {
			w := withMembers(t, "cp1", "e1", "w1")
			w.machines["e1"].down = errDown // its member answers the others
			return w, "e1", forget("e1")
		},
	}
}

// isMember says that etcd counts a host.
func (w *world) isMember(host string) bool {
	if w.managed {
		_, is := w.api.managedEtcd.votes[host]
		return is
	}
	return w.api.etcd(host) != ""
}

// A host whose member is in etcd yet is on record, or nobody would know of it.
func TestForgetTakesTheMemberFirst(t *testing.T) {
	for name, given := range givenUp(t) {
		t.Run(name, func(t *testing.T) {
			w, host, gone := given()
			w.t = t
			w.machines["cp1"].refuse = func(step string, o op.Op) *op.Error {
				if _, ok := o.(op.EtcdRemove); !ok {
					return nil
				}
				return &op.Error{Reason: "Timeout", Message: step + ": etcd does not answer in time"}
			}
			w.do(gone, event.Failed)
			w.machines["cp1"].refuse = nil
			c, err := w.service().Store.LoadCluster("prod")
			if err != nil {
				t.Fatal(err)
			}
			if !w.isMember(host) || find(c.Spec.Hosts, host) < 0 {
				t.Errorf("%s is a member: %t, and on record: %t", host, w.isMember(host), find(c.Spec.Hosts, host) >= 0)
			}
			w.resume(event.Succeeded)
			if w.isMember(host) {
				t.Errorf("%s is a member of etcd yet", host)
			}
		})
	}
}

// Killed anywhere, it is gone on with, and no member stays.
func TestKilledForget(t *testing.T) {
	for name, given := range givenUp(t) {
		w, host, gone := given()
		for _, m := range w.killed(t, gone) {
			t.Run(name+" "+m.name, func(t *testing.T) {
				k := m.world
				k.t = t
				k.machines[host].down = errDown
				c, err := k.service().Store.LoadCluster("prod")
				if err != nil {
					t.Fatal(err)
				}
				if k.isMember(host) && find(c.Spec.Hosts, host) < 0 {
					t.Errorf("%s is a member of etcd, and nobody knows of it", host)
				}
				o, err := k.service().unfinished("prod")
				if err == nil && operation.Kind(o.Spec.Type) == operation.Upgrade { // it had not begun, or has come to its end
					if find(c.Spec.Hosts, host) >= 0 {
						k.do(gone, event.Succeeded)
					}
				} else {
					k.goOn(gone)
				}
				if k.isMember(host) {
					t.Errorf("%s is a member of etcd yet", host)
				}
				k.same(w)
			})
		}
	}
}

// TestForgetOfLyingKubelet: a kubelet that reports another machine's id, or several, must
// not have that machine turned away.
func TestForgetOfLyingKubelet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, reports, want string }{
		{"its own", "id-w1", "id-w1"},
		{"another node's", "id-cp1", ""},
		{"several", "id-w1,id-cp1,id-cp2", ""},
		{"text for the policy", `"] || true || x in ["`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, threeAndTwo, threeAndTwo)
			w.machines["w1"].down = errDown
			w.api.lose("w1")
			node := w.api.objects["/api/v1/nodes/w1"]
			w.api.put("/api/v1/nodes/w1", merge(node, object{"status": object{"nodeInfo": object{"machineID": tc.reports}}}))
			w.do(Request{Kind: operation.DeleteNodes, Name: "prod", Nodes: []string{"w1"}, Forget: true}, event.Succeeded)
			if w.api.has("/api/v1/nodes/w1") {
				t.Error("w1 is still a node")
			}
			if got := w.forgotten(); got != tc.want {
				t.Errorf("the cluster turns away %q, want %q", got, tc.want)
			}
		})
	}
}
