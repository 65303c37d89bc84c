package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

// wantLeaves wants it refused that hosts stay which have begun to leave, and the way out
// first that does not depend on what was tried since.
func wantLeaves(t *testing.T, err error, name string) {
	t.Helper()
	var list diag.List
	if !errors.As(err, &list) || !slices.ContainsFunc(list.Errors(), func(d diag.Diagnostic) bool {
		return d.ID == idHostLeaves && d.Host == name && strings.Contains(d.Hint, "slipway resume prod") &&
			strings.HasPrefix(d.Hint, "finish the removal: slipway delete node "+name)
	}) {
		t.Errorf("got %v, want it refused that %s stays, with the ways out", err, name)
	}
}

// From when its API server ends, or it is to leave etcd, a host does not come
// back: it leaves, and is added again. Others go on without it.
func TestNoWayBackFromLeaving(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		managed      bool
		host, at     string
		cut          []string // what is gone from the host, besides
	}{
		{"the first control plane", "its API server and its member are gone: it cannot lead", false, "cp1", "reset.kubernetes", nil},
		{
			"the first, Kubernetes is off", "it must not begin the cluster anew", false, "cp1", "reset.restore",
			[]string{module.ClientCert, facts.EtcdData},
		},
		{
			"the first, half restored", "the mark is off first", false, "cp1", "reset.restore",
			[]string{module.ClientCert, facts.EtcdData, facts.EtcdJoined, module.LeavesMark},
		},
		{"a further one", "etcd does not take the data of a member that was removed", false, "cp3", "reset.kubernetes", nil},
		{"its API server alone has ended", "it may be on the way already", false, "cp3", "leave.member", nil},
		{"a control plane beside etcd", "it cannot lead", true, "cp1", "reset.kubernetes", nil},
		{"a member on a host of its own", "nothing would make it one again", true, "e1", "reset.kubernetes", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			names := threeAndTwo
			if tc.managed {
				names = append([]string{"e1"}, names...)
			}
			w := newWorld(t, names...)
			w.managed = tc.managed
			w.create(event.Succeeded)
			for _, m := range w.machines {
				m.refuse = breaking(tc.at)
			}
			w.do(Request{Kind: operation.DeleteNodes, Name: "prod", Nodes: []string{tc.host}}, event.Failed)
			for _, m := range w.machines {
				m.refuse = nil
			}
			for _, path := range tc.cut {
				delete(w.machines[tc.host].files, path)
			}
			_, err := w.service().PrepareRollback(t.Context(), "prod", Request{}, nil)
			wantLeaves(t, err, tc.host)
			_, err = w.service().Prepare(t.Context(), Request{Kind: operation.Apply, Cluster: w.cluster()}, nil)
			wantLeaves(t, err, tc.host)
			p := w.prepared(w.service().Prepare(t.Context(), Request{Kind: operation.Apply, Cluster: w.cluster(), IgnoreErrors: true}, nil))
			if slices.Contains(touched(p.Plan()), tc.host) {
				t.Errorf("%s is touched where it is to be passed over: %s", tc.host, tc.reason)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			w.resume(event.Succeeded)
			w.wantRecords(slices.DeleteFunc(slices.Clone(w.all()), func(n string) bool { return n == tc.host })...)
			w.do(Request{Kind: operation.Apply, Cluster: w.cluster()}, event.Succeeded)
			w.wantHosts(w.all()...)
		})
	}
}

// all are the names of the machines, sorted.
func (w *world) all() (out []string) {
	for _, h := range w.cluster().Spec.Hosts {
		out = append(out, h.Name)
	}
	return out
}

// Until then it can be taken back.
func TestBackFromDraining(t *testing.T) {
	w := running(t, threeAndTwo, threeAndTwo)
	ctx, cancel := context.WithCancel(t.Context())
	w.machines["cp1"].touched = func(what string) {
		if strings.HasPrefix(what, "leave.begin") {
			cancel()
		}
	}
	p := w.prepared(w.service().Prepare(ctx, Request{Kind: operation.DeleteNodes, Name: "prod", Nodes: []string{"cp1"}}, nil))
	if res, err := p.Apply(ctx); err != nil || res.Outcome != event.Cancelled {
		t.Fatalf("%+v, %v", res, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	w.rollback(event.Succeeded)
	w.wantHosts(threeAndTwo...)
}

// A machine that was to take a place, and has something on it, is not left with
// it: a control plane's has the keys of the cluster's authorities.
func TestPlaceTakenTwice(t *testing.T) {
	for _, tc := range []struct {
		name, host, at string // at: the step that fails; "" is the first
		by             func(*world) Request
	}{
		{
			"a control plane, by a file", "cp3", "join.kubelet-start",
			func(w *world) Request { return Request{Kind: operation.Apply, Cluster: w.cluster()} },
		},
		{"a worker, by a flag", "w1", "join.kubelet-start", func(w *world) Request {
			return Request{Kind: operation.AddNodes, Name: "prod", Hosts: []spec.HostFlag{w.flag("w1")}}
		}},
		{
			"a worker whose first step was cut off", "w1",
			"", func(w *world) Request { return Request{Kind: operation.Apply, Cluster: w.cluster()} },
		},
		{"a control plane, taken back", "cp3", "join.kubelet-start", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, threeAndTwo, threeAndTwo)
			first := w.machines[tc.host]
			other := func(address string) *machine {
				m := newMachine(tc.host, address, w.api)
				m.machineID = "id-" + address
				w.machines[tc.host] = m
				return m
			}
			w.api.lose(tc.host)
			w.api.lost(tc.host)
			second := other("192.0.2.31")
			second.refuse = func(step string, o op.Op) *op.Error {
				return breaking(cmp.Or(tc.at, step))(step, o)
			}
			w.do(Request{Kind: operation.Apply, Cluster: w.cluster()}, event.Failed)

			var err error
			if tc.by == nil {
				w.machines[tc.host] = first
				_, err = w.service().PrepareRollback(t.Context(), "prod", Request{}, nil)
			} else {
				other("192.0.2.32")
				_, err = w.service().Prepare(t.Context(), tc.by(w), nil)
			}
			refusal(t, err, idHostLeft)

			w.machines[tc.host], second.refuse = second, nil
			w.do(Request{Kind: operation.DeleteNodes, Name: "prod", Nodes: []string{tc.host}}, event.Succeeded)
			if len(second.look()) > 0 || second.ledger {
				t.Errorf("the second machine has on it %v", second.look())
			}
			other("192.0.2.32")
			w.do(Request{Kind: operation.Apply, Cluster: w.cluster()}, event.Succeeded)
			w.wantHosts(threeAndTwo...)
		})
	}
}

// A machine that nobody has taken the place of has it back, and the one that was
// to take it is put back as it was.
func TestPlaceKept(t *testing.T) {
	apply := func(w *world) (Prepared, error) {
		return w.service().Prepare(t.Context(), Request{Kind: operation.Apply, Cluster: w.cluster()}, nil)
	}
	for _, tc := range []struct {
		name, host, at, reason string
		by                     func(*world) (Prepared, error)
		kept                   bool
	}{
		{"a worker, by a rollback", "w1", "kubernetes.kubelet", "its node is as it was", func(w *world) (Prepared, error) {
			return w.service().PrepareRollback(t.Context(), "prod", Request{}, nil)
		}, true},
		{"a worker, by a file", "w1", "kubernetes.kubelet", "its node is as it was", apply, true},
		{"a worker, by a flag", "w1", "kubernetes.kubelet", "its node is as it was", func(w *world) (Prepared, error) {
			return w.service().Prepare(t.Context(), Request{Kind: operation.AddNodes, Name: "prod", Hosts: []spec.HostFlag{w.flag("w1")}}, nil)
		}, true},
		{"a control plane, by a file", "cp3", "kubernetes.kubelet", "it is a member of etcd still", apply, true},
		{"a worker that came back meanwhile", "w1", "", "its node is not deleted", apply, true},
		{"a worker whose node is gone", "w1", "join.kubelet-start", "the cluster turns it away", apply, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, threeAndTwo, threeAndTwo)
			first := w.machines[tc.host]
			second := newMachine(tc.host, "192.0.2.31", w.api)
			second.machineID, second.refuse = "id-new", breaking(tc.at)
			back := func() {
				w.api.mu.Lock()
				defer w.api.mu.Unlock()
				if node := w.api.objects["/api/v1/nodes/"+tc.host]; node != nil {
					node["status"].(object)["conditions"] = []any{object{"type": "Ready", "status": "True"}}
				}
			}
			if tc.at == "" {
				second.touched = func(string) { back() }
			}
			w.machines[tc.host] = second
			w.api.lose(tc.host)
			c := w.cluster()
			c.Spec.Hosts[find(c.Spec.Hosts, tc.host)].SSH.User = "other"
			w.do(Request{Kind: operation.Apply, Cluster: c}, event.Failed)

			w.machines[tc.host] = first
			back()
			p, err := tc.by(w)
			if !tc.kept {
				refusal(t, err, idHostLeft)
				return
			}
			p = w.prepared(p, err)
			if !slices.ContainsFunc(p.Findings(), func(d diag.Diagnostic) bool {
				return d.ID == idHostLeft && strings.Contains(d.Hint, "slipway delete node --host other@192.0.2.31")
			}) {
				t.Errorf("it is not told how the other machine is put back: %v", p.Findings())
			}
			w.apply(p, event.Succeeded)
			second.refuse, second.touched = nil, nil
			w.machines["192.0.2.31"] = second
			w.do(Request{Kind: operation.DeleteNodes, Name: "prod", Hosts: []spec.HostFlag{{User: "other", Address: "192.0.2.31"}}}, event.Succeeded)
			if len(second.look()) > 0 || second.ledger {
				t.Errorf("the second machine has on it %v: %s", second.look(), tc.reason)
			}
			delete(w.machines, "192.0.2.31")
			w.wantHosts(threeAndTwo...)
		})
	}
}

// A node that dies while it is changed is replaced without asking for it: it was
// one before.
func TestReplaceWhatWasTouched(t *testing.T) {
	w := running(t, threeAndTwo, threeAndTwo)
	w.machines["w2"].refuse = breaking("kubelet.settings")
	w.do(Request{Kind: operation.Apply, Cluster: w.changed()}, event.Failed)
	m := newMachine("w2", "192.0.2.31", w.api)
	m.machineID = "id-new"
	w.machines["w2"] = m
	w.api.lose("w2")
	w.do(Request{Kind: operation.Apply, Cluster: w.cluster()}, event.Succeeded)
	w.wantHosts(threeAndTwo...)
}
