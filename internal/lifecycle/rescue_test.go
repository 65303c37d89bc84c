package lifecycle

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
)

// log is how far the log of a machine's member goes: its data say so.
func (m *machine) log() (is op.EtcdSalvaged) {
	_, _ = fmt.Sscanf(m.files[facts.EtcdData], "log %d %d %d %s", &is.Term, &is.Index, &is.Commit, &is.Damaged)
	if n, ok := strings.CutPrefix(is.Damaged, "cluster-"); ok {
		is.Damaged, is.Cluster = "", uint64(len(n))
	}
	return is
}

// salvaged is what a machine answers about its data.
func (m *machine) salvaged(o op.EtcdSalvage) ([]byte, bool) {
	is := m.log()
	_, made := m.files["/var/lib/slipway/salvage.json"]
	if o.Key != "" && made {
		is.Snapshot = &op.EtcdSnapshotInfo{Revision: 4711, Keys: 600}
	}
	raw, err := json.Marshal(is)
	if err != nil {
		panic(err)
	}
	return raw, o.Key == "" || made
}

// salvage plays the making of a snapshot from a copy of the data: only of those of
// a member that is stopped, and that were planned with.
func (m *machine) salvage(o op.EtcdSalvage) *op.Error {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	if is := m.log(); is.Term != o.Term || is.Index != o.Index {
		return &op.Error{Reason: op.IDEtcdMoved, Message: "it has moved"}
	}
	if !m.api.done["stop "+o.Key+" "+m.name] {
		return &op.Error{Reason: "TooEarly", Message: "it runs"}
	}
	m.files["/var/lib/slipway/salvage.json"] = o.Key
	return nil
}

// rescue plays a step of a rescue, and minds the order.
func (m *machine) rescue(o op.EtcdRestore) *op.Error {
	early := func(what string) *op.Error {
		return &op.Error{Reason: "TooEarly", Message: fmt.Sprintf("%s on %s: %s", o.Do, m.name, what)}
	}
	did := func(do op.RestoreStep) bool { return m.api.done[string(do)+" "+o.Key+" "+m.name] }
	all := func(do op.RestoreStep) bool {
		for _, name := range m.api.left {
			if !m.api.done[string(do)+" "+o.Key+" "+name] {
				return false
			}
		}
		return true
	}
	switch o.Do {
	case op.RestoreStop:
		m.api.running = false
	case op.RestorePrepare:
		if m.files["/var/lib/slipway/salvage.json"] != o.Key || o.Cluster != o.Name+"="+o.PeerURL || o.From != op.SalvagedSnapshot(facts.DirEtcd, o.Key) {
			return early(fmt.Sprintf("it has %+v", o))
		}
	case op.RestoreSwap:
		if !did(op.RestorePrepare) || !all(op.RestoreStop) {
			return early("nothing is prepared, or something runs")
		}
		m.files[facts.EtcdData] = "rescued"
		m.api.revision = "1000004711"
	case op.RestoreAside:
		if !did(op.RestoreStop) || m.api.revision != "1000004711" {
			return early("the others have no data yet")
		}
		delete(m.files, facts.EtcdData)
	case op.RestoreStart:
		m.api.running = true
	}
	m.api.done[string(o.Do)+" "+o.Key+" "+m.name] = true
	if o.Do == op.RestoreSwap { // what had stopped stays stopped
		m.api.done["stop "+o.Key+" "+m.name] = true
	}
	return nil
}

// outnumbered is a cluster of three of which two machines are gone; cp2 is left.
func outnumbered(t *testing.T) (*world, Request) {
	t.Helper()
	w, e := etcdWorld(t)
	w.machines["cp2"].files[facts.EtcdData] = "log 4 900 899"
	w.loses(e, "cp1", "cp3")
	return w, Request{Kind: RescueEtcd, Name: "prod", Nodes: []string{"cp1", "cp3"}}
}

// loses has machines be gone: too many are left that follow nobody.
func (w *world) loses(e *ensemble, names ...string) {
	e.elect(0)
	for _, m := range e.members {
		if slices.Contains(names, m.name) {
			m.down = true
		} else {
			w.api.left = append(w.api.left, m.name)
		}
	}
	for _, name := range names {
		w.machines[name].down = errDown
	}
	w.api.halt()
	w.api.rescuing, w.api.done = true, map[string]bool{}
}

func TestRescue(t *testing.T) {
	w, request := outnumbered(t)
	p := w.prepared(w.impatient().Prepare(t.Context(), request, nil))
	loses := strings.Join(p.Plan().Removes, "\n")
	for _, want := range []string{"cp2 has not heard of", "term 4, entry 900. Those after 899 may never have been acknowledged; they are kept", "on cp1, cp3", "must never be used again"} {
		if !strings.Contains(loses, want) {
			t.Errorf("the plan does not say %q:\n%s", want, loses)
		}
	}
	res := w.apply(p, event.Succeeded)
	said := strings.Join(res.Ready, "\n")
	for _, want := range []string{"one member, on cp2", "revision 4711, 600 keys", "before-" + res.Operation, "delete nodes cp1 cp3 --cluster prod --forget --break-lock", "2. back to full size: slipway add nodes prod"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	if got := w.machines["cp2"].files[facts.EtcdData]; got != "rescued" {
		t.Errorf("cp2 has %q", got)
	}
	w.wantStatus(v1alpha1.PhaseRunning, "etcd-rescue Succeeded", "create Succeeded")
	if w.machines["cp2"].lock.Held {
		t.Error("the lock is held still")
	}
}

// Killed anywhere, it is gone on with, and the end is the same.
func TestKilledRescue(t *testing.T) {
	w, request := outnumbered(t)
	for _, m := range w.killed(t, request) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.t = t
			for _, gone := range request.Nodes {
				k.machines[gone].down = errDown
			}
			k.goOn(request)
			if phase, ops := k.status(); phase != v1alpha1.PhaseRunning || ops[0] != "etcd-rescue Succeeded" {
				t.Errorf("phase %q, operations %v", phase, ops)
			}
			k.same(w)
		})
	}
}

// The best of several that are left goes on, and the others' data are moved aside:
// by the term of their last entries first, whatever their indices.
func TestRescueRanks(t *testing.T) {
	five := []string{"cp1", "cp2", "cp3", "cp4", "cp5"}
	for _, tc := range []struct {
		name, reason string
		cp2, cp4     string
		best, other  string
	}{
		{"term", "a later leader's entries count for more", "log 5 10 10", "log 4 900 900", "cp2", "cp4"},
		{"index", "it has more of the same", "log 4 899 899", "log 4 900 1", "cp4", "cp2"},
		{"a tie", "it knows more to be agreed upon", "log 4 900 899", "log 4 900 900", "cp4", "cp2"},
		{"damaged", "what cannot be read may be what counts", "log 5 900 900 damaged", "log 4 900 900", "cp4", "cp2"},
		{"no data", "there is one with some", "", "log 1 1 1", "cp4", "cp2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, five, five)
			e := votersOf(w, five...)
			w.machines["cp2"].files[facts.EtcdData], w.machines["cp4"].files[facts.EtcdData] = tc.cp2, tc.cp4
			w.loses(e, "cp1", "cp3", "cp5")
			request := Request{Kind: RescueEtcd, Name: "prod", Nodes: []string{"cp1", "cp3", "cp5"}}
			p := w.prepared(w.impatient().Prepare(t.Context(), request, nil))
			if over := "on " + tc.other + " (passed over, for its log is damaged"; strings.Contains(strings.Join(p.Plan().Removes, "\n"), over) != strings.HasSuffix(tc.cp2, "damaged") {
				t.Errorf("%s: the plan says %q", tc.reason, p.Plan().Removes)
			}
			res := w.apply(p, event.Succeeded)
			if !strings.HasPrefix(res.Ready[0], "etcd runs with one member, on "+tc.best) || !strings.Contains(strings.Join(res.Ready, "\n"), "delete nodes "+tc.other+" --cluster prod") {
				t.Errorf("%s: %v", tc.reason, res.Ready)
			}
			if w.machines[tc.best].files[facts.EtcdData] != "rescued" || w.machines[tc.other].has(facts.EtcdData) {
				t.Errorf("%s has %q, %s has %q", tc.best, w.machines[tc.best].files[facts.EtcdData], tc.other, w.machines[tc.other].files[facts.EtcdData])
			}
		})
	}
}

func TestRescueRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		do           func(*world, *ensemble, *Request)
		want         string
	}{
		{"it answers", "what it has is not lost", func(w *world, _ *ensemble, _ *Request) { w.machines["cp1"].down = nil }, idRescueAnswers},
		{"its member answers", "the host may be cut off from here alone", func(_ *world, e *ensemble, _ *Request) { e.members[0].down = false }, idRescueAnswers},
		{"it is not declared lost", "it may have the better data", func(_ *world, _ *ensemble, r *Request) { r.Nodes = r.Nodes[:1] }, idRescueSilent},
		{"a worker", "it has no part in this", func(_ *world, _ *ensemble, r *Request) { r.Nodes = append(r.Nodes, "w1") }, idRescueUnknown},
		{"nobody", "there is none of that name", func(_ *world, _ *ensemble, r *Request) { r.Nodes = append(r.Nodes, "cp9") }, idRescueUnknown},
		{"enough are left", "they need only be started", func(w *world, _ *ensemble, r *Request) {
			w.machines["cp3"].down, r.Nodes = nil, []string{"cp1"}
		}, idRescueNotNeeded},
		{"no data", "there is nothing to go on with", func(w *world, _ *ensemble, _ *Request) { delete(w.machines["cp2"].files, facts.EtcdData) }, idRescueNoData},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, e := etcdWorld(t)
			w.machines["cp2"].files[facts.EtcdData] = "log 4 900 899"
			w.loses(e, "cp1", "cp3")
			request := Request{Kind: RescueEtcd, Name: "prod", Nodes: []string{"cp1", "cp3"}}
			tc.do(w, e, &request)
			_, err := w.impatient().Prepare(t.Context(), request, nil)
			refusal(t, err, tc.want)
			if t.Failed() {
				t.Log(tc.reason)
			}
		})
	}
}

// One with data of before a restore is not compared with those of after: its term
// is higher, and what it has is older.
func TestRescueOfSeveralClusters(t *testing.T) {
	five := []string{"cp1", "cp2", "cp3", "cp4", "cp5"}
	w := running(t, five, five)
	e := votersOf(w, five...)
	w.machines["cp2"].files[facts.EtcdData], w.machines["cp4"].files[facts.EtcdData] = "log 50 900 900 cluster-before", "log 2 30 30"
	w.loses(e, "cp1", "cp3", "cp5")
	request := Request{Kind: RescueEtcd, Name: "prod", Nodes: []string{"cp1", "cp3", "cp5"}}
	_, err := w.impatient().Prepare(t.Context(), request, nil)
	refusal(t, err, idRescueClusters)
	delete(w.machines["cp2"].files, facts.EtcdData)
	if res := w.do(request, event.Succeeded); !strings.HasPrefix(res.Ready[0], "etcd runs with one member, on cp4") {
		t.Errorf("%v", res.Ready)
	}
}

// A cluster that works is not rescued.
func TestRescueNotNeeded(t *testing.T) {
	w, e := etcdWorld(t)
	e.members[2].down, w.machines["cp3"].down = true, errDown
	_, err := w.impatient().Prepare(t.Context(), Request{Kind: RescueEtcd, Name: "prod", Nodes: []string{"cp3"}}, nil)
	refusal(t, err, idRescueNotNeeded)
}

// An etcd that runs as a service is rescued where it runs, and the control plane
// beside it is started anew.
func TestRescueManaged(t *testing.T) {
	w := newWorld(t, "cp1", "e1", "e2", "e3")
	w.managed = true
	c := w.cluster()
	c.Spec.Hosts[0].Roles = c.Spec.Hosts[0].Roles[:1]
	w.do(Request{Kind: Create, Cluster: c}, event.Succeeded)
	e := votersOf(w, "e1", "e2", "e3")
	w.machines["e3"].files[facts.EtcdData] = "log 7 100 100"
	w.loses(e, "e1", "e2")
	request := Request{Kind: RescueEtcd, Name: "prod", Nodes: []string{"e1", "e2"}}
	res := w.apply(w.prepared(w.impatient().Prepare(t.Context(), request, nil)), event.Succeeded)
	if !strings.HasPrefix(res.Ready[0], "etcd runs with one member, on e3") {
		t.Errorf("%v", res.Ready)
	}
	if w.machines["e3"].files[facts.EtcdData] != "rescued" || w.machines["cp1"].has(facts.EtcdData) {
		t.Error("the data are not where they belong")
	}
}
