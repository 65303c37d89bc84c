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
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

// wantLeaves checks that keeping a host is refused because it has begun to leave. The
// first hint works whatever was tried since.
func wantLeaves(t *testing.T, err error, name string) {
	t.Helper()
	var list diag.List
	if !errors.As(err, &list) || !slices.ContainsFunc(list.Errors(), func(d diag.Diagnostic) bool {
		return d.ID == idHostLeaves && d.Host == name &&
			d.Hint == "finish the removal before you add the host again: slipway delete node "+name
	}) {
		t.Errorf("got %v, want an error that %s is leaving, with hints", err, name)
	}
}

// A host cannot return after its API server stops or its etcd member is removed. It has to
// leave and be added again; the other hosts continue without it.
func TestRollback_RefusedOnceHostLeaves(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		managed      bool
		host, at     string
		cut          []string // files that are also missing on the host
	}{
		{"the first control plane", "its API server and etcd member are gone", false, "cp1", "reset.kubernetes", nil},
		{
			"the first, Kubernetes is off", "it must not initialize a new cluster", false, "cp1", "reset.restore",
			[]string{module.ClientCert, facts.EtcdData},
		},
		{
			"the first, half restored", "the mark is removed first", false, "cp1", "reset.restore",
			[]string{module.ClientCert, facts.EtcdData, facts.EtcdJoined, module.LeavesMark},
		},
		{"a further one", "etcd does not take the data of a member that was removed", false, "cp3", "reset.kubernetes", nil},
		{"its API server alone has ended", "its etcd member may already be leaving", false, "cp3", "leave.member", nil},
		{"a control plane with managed etcd", "its API server is gone", true, "cp1", "reset.kubernetes", nil},
		{"a dedicated etcd host", "no task would add its member again", true, "e1", "reset.kubernetes", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			names := threeAndTwo
			if tc.managed {
				names = append([]string{"e1"}, names...)
			}
			w := newWorld(t, names...)
			w.ManagedEtcd = tc.managed
			w.create(event.Succeeded)
			for _, m := range w.Hosts {
				m.Refuse = breaking(tc.at)
			}
			w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{tc.host}}, event.Failed)
			for _, m := range w.Hosts {
				m.Refuse = nil
			}
			for _, path := range tc.cut {
				delete(w.Hosts[tc.host].Files, path)
			}
			_, err := w.service().PrepareRollback(t.Context(), rollingBack(), nil)
			wantLeaves(t, err, tc.host)
			_, err = w.service().Prepare(t.Context(), applying(w.Manifest()), nil)
			wantLeaves(t, err, tc.host)
			p := w.prepared(w.service().Prepare(t.Context(), despiteErrors(applying(w.Manifest())), nil))
			if slices.Contains(touched(p.Plan()), tc.host) {
				t.Errorf("%s has steps, but should be left out: %s", tc.host, tc.reason)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			w.resume(event.Succeeded)
			w.wantRecords(slices.DeleteFunc(slices.Clone(w.all()), func(n string) bool { return n == tc.host })...)
			w.do(applying(w.Manifest()), event.Succeeded)
			w.wantHosts(w.all()...)
		})
	}
}

// all returns the names of the machines, sorted.
func (w *world) all() (out []string) {
	for _, h := range w.Manifest().Spec.Hosts {
		out = append(out, h.Name)
	}
	return out
}

// Until then the removal can be rolled back.
func TestRollback_AllowedWhileDraining(t *testing.T) {
	t.Parallel()
	w := running(t, threeAndTwo, threeAndTwo)
	ctx, cancel := context.WithCancel(t.Context())
	w.Hosts["cp1"].OnChange = func(what string) {
		if strings.HasPrefix(what, "leave.begin") {
			cancel()
		}
	}
	p := w.prepared(w.service().Prepare(ctx, DeleteNodesRequest{Name: "prod", Nodes: []string{"cp1"}}, nil))
	if res, err := p.Apply(ctx); err != nil || res.Outcome != event.Cancelled {
		t.Fatalf("%+v, %v", res, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	w.rollback(event.Succeeded)
	w.wantHosts(threeAndTwo...)
}

// A replacement machine with files on it cannot be dropped without a reset. A control
// plane has the keys of the cluster's CAs.
func TestReplaceNode_RefusedUntilReplacementIsReset(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, host, at string // at: the step that fails; "" is the first
		by             func(*world) Request
	}{
		{
			"a control plane, by a file", "cp3", "join.kubelet-start",
			func(w *world) Request { return applying(w.Manifest()) },
		},
		{"a worker, by a flag", "w1", "join.kubelet-start", func(w *world) Request {
			return AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{w.flag("w1")}}
		}},
		{
			"a worker whose first step was interrupted", "w1",
			"", func(w *world) Request { return applying(w.Manifest()) },
		},
		{"a control plane, rolled back", "cp3", "join.kubelet-start", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, threeAndTwo, threeAndTwo)
			first := w.Hosts[tc.host]
			other := func(address string) *lifecycletest.Host {
				m := lifecycletest.NewHost(tc.host, address, w.API)
				m.MachineID = "id-" + address
				w.Hosts[tc.host] = m
				return m
			}
			w.API.MarkNodeLost(tc.host)
			w.API.StopMember(tc.host)
			second := other("192.0.2.31")
			second.Refuse = func(step string, o op.Op) *op.Error {
				return breaking(cmp.Or(tc.at, step))(step, o)
			}
			w.do(applying(w.Manifest()), event.Failed)

			var err error
			if tc.by == nil {
				w.Hosts[tc.host] = first
				_, err = w.service().PrepareRollback(t.Context(), rollingBack(), nil)
			} else {
				other("192.0.2.32")
				_, err = w.service().Prepare(t.Context(), tc.by(w), nil)
			}
			refusal(t, err, idHostLeft)

			w.Hosts[tc.host], second.Refuse = second, nil
			w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{tc.host}}, event.Succeeded)
			if len(second.AllState()) > 0 || second.HasLedger {
				t.Errorf("the second machine still has %v", second.AllState())
			}
			other("192.0.2.32")
			w.do(applying(w.Manifest()), event.Succeeded)
			w.wantHosts(threeAndTwo...)
		})
	}
}

// A machine keeps its place if its replacement has not taken it yet. The replacement is
// then reset.
func TestReplaceNode_FirstMachineReturns(t *testing.T) {
	t.Parallel()
	apply := func(w *world) (Prepared, error) {
		return w.service().Prepare(t.Context(), applying(w.Manifest()), nil)
	}
	for _, tc := range []struct {
		name, host, at, reason string
		by                     func(*world) (Prepared, error)
		kept                   bool
	}{
		{"a worker, by a rollback", "w1", "kubernetes.kubelet", "its node is unchanged", func(w *world) (Prepared, error) {
			return w.service().PrepareRollback(t.Context(), rollingBack(), nil)
		}, true},
		{"a worker, by a file", "w1", "kubernetes.kubelet", "its node is unchanged", apply, true},
		{"a worker, by a flag", "w1", "kubernetes.kubelet", "its node is unchanged", func(w *world) (Prepared, error) {
			return w.service().Prepare(t.Context(), AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{w.flag("w1")}}, nil)
		}, true},
		{"a control plane, by a file", "cp3", "kubernetes.kubelet", "it is still an etcd member", apply, true},
		{"a worker that came back meanwhile", "w1", "", "its node is not deleted", apply, true},
		{"a worker whose node is gone", "w1", "join.kubelet-start", "the cluster rejects it", apply, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, threeAndTwo, threeAndTwo)
			first := w.Hosts[tc.host]
			second := lifecycletest.NewHost(tc.host, "192.0.2.31", w.API)
			second.MachineID, second.Refuse = "id-new", breaking(tc.at)
			back := func() {
				w.API.Mu.Lock()
				defer w.API.Mu.Unlock()
				if node := w.API.Objects["/api/v1/nodes/"+tc.host]; node != nil {
					node["status"].(object)["conditions"] = []any{object{"type": "Ready", "status": "True"}}
				}
			}
			if tc.at == "" {
				second.OnChange = func(string) { back() }
			}
			w.Hosts[tc.host] = second
			w.API.MarkNodeLost(tc.host)
			c := w.Manifest()
			c.Spec.Hosts[spec.FindHost(c.Spec.Hosts, tc.host)].SSH.User = "other"
			w.do(applying(c), event.Failed)

			w.Hosts[tc.host] = first
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
				t.Errorf("no hint how to reset the other machine: %v", p.Findings())
			}
			w.apply(p, event.Succeeded)
			second.Refuse, second.OnChange = nil, nil
			w.Hosts["192.0.2.31"] = second
			w.do(DeleteNodesRequest{Name: "prod", Hosts: []spec.HostFlag{{User: "other", Address: "192.0.2.31"}}}, event.Succeeded)
			if len(second.AllState()) > 0 || second.HasLedger {
				t.Errorf("the second machine still has %v: %s", second.AllState(), tc.reason)
			}
			delete(w.Hosts, "192.0.2.31")
			w.wantHosts(threeAndTwo...)
		})
	}
}

// A node that dies during a change can be replaced by an apply, because it was a node
// before the change.
func TestReplaceNode_DiedDuringChange(t *testing.T) {
	t.Parallel()
	w := running(t, threeAndTwo, threeAndTwo)
	w.Hosts["w2"].Refuse = breaking("kubelet.settings")
	w.do(applying(w.changed()), event.Failed)
	m := lifecycletest.NewHost("w2", "192.0.2.31", w.API)
	m.MachineID = "id-new"
	w.Hosts["w2"] = m
	w.API.MarkNodeLost("w2")
	w.do(applying(w.Manifest()), event.Succeeded)
	w.wantHosts(threeAndTwo...)
}
