package lifecycle

import (
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// What this machine lacks to log in says nothing of a host: neither a cluster
// nor a node is given up for it.
func TestForgetWantsGoneHosts(t *testing.T) {
	cluster := Request{Kind: operation.Delete, Name: "prod", Forget: true}
	node := Request{Kind: operation.DeleteNodes, Name: "prod", Nodes: []string{"w1"}, Forget: true, Removal: Removal{Force: true}}
	for _, tc := range []struct {
		name, reason string
		is           remote.Reason
		here, given  bool
	}{
		{"no key", "the key may be on another machine", remote.KeyUnreadable, false, false},
		{"no password", "a variable is not set in this shell", remote.SecretUnreadable, false, false},
		{"unknown", "this machine has not seen it before", remote.HostKeyUnknown, false, false},
		{"this machine", "it is here, and wants root", remote.SudoFailed, true, false},
		{"dead", "it does not answer", remote.Unreachable, false, true},
		{"another machine", "it was installed anew", remote.HostKeyChanged, false, true},
		{"not ours", "another machine has its address, and knows nobody of us", remote.AuthFailed, false, true},
		{"not ours any more", "nothing can be done on it", remote.SudoFailed, false, true},
	} {
		for kind, r := range map[string]Request{"cluster": cluster, "node": node} {
			t.Run(tc.name+" "+kind, func(t *testing.T) {
				w := newWorld(t, "cp1", "w1")
				c := w.cluster()
				if tc.here {
					c.Spec.Hosts[1].Address, c.Spec.Hosts[1].InternalAddress = "localhost", w.machines["w1"].address
				}
				w.do(Request{Kind: operation.Create, Cluster: c}, event.Succeeded)
				w.machines["w1"].down = &remote.Error{Host: "w1", Reason: tc.is, Cause: "it is not to be had", Remedy: "mend it"}
				p, err := w.service().Prepare(t.Context(), r, nil)
				if tc.given {
					w.prepared(p, err)
					return
				}
				refusal(t, err, string(tc.is))
				if err != nil && (!strings.Contains(err.Error(), "mend it (--forget does not help") || !strings.Contains(err.Error(), "--forget")) {
					t.Errorf("the refusal says neither what to do nor why --forget does not: %v", err)
				}
				if c, err := w.service().Cluster(t.Context(), "prod"); err != nil || len(c.Spec.Hosts) != 2 {
					t.Errorf("%v: the record is gone: %s", err, tc.reason)
				}
			})
		}
	}
}

// What stays on record can be left as it is for any reason.
func TestIgnoreWhatIsHere(t *testing.T) {
	for name, r := range map[string]Request{
		"a delete that is gone on with": {Kind: operation.Delete, Name: "prod", IgnoreErrors: true},
		"a host beside one given up":    {Kind: operation.DeleteNodes, Name: "prod", Nodes: []string{"w2"}, Forget: true, IgnoreErrors: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := running(t, threeAndTwo, threeAndTwo)
			w.machines["cp2"].down = &remote.Error{Host: "cp2", Reason: remote.KeyUnreadable, Cause: "there is no key", Remedy: "name one"}
			p := w.prepared(w.service().Prepare(t.Context(), r, nil))
			if f := p.Failures(); len(f) != 1 || f[0].Host != "cp2" {
				t.Errorf("failures of the plan %+v, want cp2", f)
			}
		})
	}
}

// A control plane that is down is asked in every change of hosts; that the
// others need not wait for it is in the hint, and so it is.
func TestDeadControlPlaneAndOthers(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		request      func(*world) Request
		down         string
		offered      bool
	}{
		{
			"delete another", "the worker has nothing to do with it",
			func(*world) Request { return Request{Kind: operation.DeleteNodes, Name: "prod", Nodes: []string{"w1"}} }, "cp2", true,
		},
		{
			"add another", "nor has a new one",
			func(w *world) Request {
				return Request{Kind: operation.AddNodes, Name: "prod", Hosts: []spec.HostFlag{w.flag("w3")}}
			}, "cp2", true,
		},
		{"apply", "nor have the others", func(w *world) Request {
			return Request{Kind: operation.Apply, Cluster: w.of(append(threeAndTwo, "w3")...)}
		}, "cp2", true},
		{
			"add it", "nothing would be left to do",
			func(w *world) Request {
				return Request{Kind: operation.AddNodes, Name: "prod", Hosts: []spec.HostFlag{w.flag("w3")}}
			}, "w3", false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, append(threeAndTwo, "w3"), threeAndTwo)
			w.machines[tc.down].down = errDown
			w.api.lost(tc.down)
			r := tc.request(w)
			_, err := w.service().Prepare(t.Context(), r, nil)
			refusal(t, err, string(remote.Unreachable))
			const want = "start it, or continue without this host for now: --ignore-errors"
			if err != nil && strings.Contains(err.Error(), want) != tc.offered {
				t.Errorf("%v: %q is in it, want %t: %s", err, want, tc.offered, tc.reason)
			}
			if r.IgnoreErrors = true; tc.offered {
				w.do(r, event.Partial)
				w.wantPhase(v1alpha1.PhaseFailed)
			}
		})
	}
}

// No kubelet may be newer than an API server that it asks, and one that nobody reaches
// may serve all the same: none is left behind by those that come after it.
func TestUpgradeLeavesNoneBehind(t *testing.T) {
	for _, tc := range []struct {
		name, reason, down string
		prepare            func(*service, Request) (Prepared, error)
		offered            bool
	}{
		{"on, a control plane", "workers would be newer than its API server", "cp3", func(s *service, r Request) (Prepared, error) {
			return s.PrepareResume(t.Context(), "prod", r, nil)
		}, false},
		{"on, a worker", "it is older than all that it asks", "w2", func(s *service, r Request) (Prepared, error) {
			return s.PrepareResume(t.Context(), "prod", r, nil)
		}, true},
		{"back, a worker", "it would be newer than the API servers", "w2", func(s *service, r Request) (Prepared, error) {
			return s.PrepareRollback(t.Context(), "prod", r, nil)
		}, false},
		{"back, a control plane", "so would its own kubelet", "cp3", func(s *service, r Request) (Prepared, error) {
			return s.PrepareRollback(t.Context(), "prod", r, nil)
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := aged(t, threeAndTwo...)
			w.refusing("w1", "kubernetes.programs")
			w.do(toNewest, event.Failed)
			w.machines["w1"].refuse, w.machines[tc.down].down = nil, errDown
			_, err := tc.prepare(w.service(), Request{})
			refusal(t, err, string(remote.Unreachable))
			if err != nil &&
				(strings.Contains(err.Error(), "--ignore-errors") != tc.offered ||
					strings.Contains(err.Error(), "delete node "+tc.down+" --forget") == tc.offered) {
				t.Errorf("%v: to go on without it is offered, want %t: %s", err, tc.offered, tc.reason)
			}
			p, err := tc.prepare(w.service(), Request{IgnoreErrors: true})
			if tc.offered {
				w.prepared(p, err)
				return
			}
			if err == nil {
				w.prepared(p, err)
			}
			refusal(t, err, string(remote.Unreachable))
			if err != nil && !strings.Contains(err.Error(), "delete node "+tc.down+" --forget") {
				t.Errorf("%v does not say what to do instead", err)
			}
		})
	}
}
