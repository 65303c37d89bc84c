package lifecycle

import (
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// Missing login settings on this machine do not prove that a host is lost. Neither a
// cluster nor a node is force-removed for them.
func TestForget_RefusesHostsNotProvenLost(t *testing.T) {
	t.Parallel()
	cluster := DeleteRequest{Subject: Subject{Name: "prod"}, Forget: true}
	node := DeleteNodesRequest{Name: "prod", Nodes: []string{"w1"}, Forget: true, Removal: Removal{Force: true}}
	for _, tc := range []struct {
		name, reason string
		is           remote.Reason
		here, given  bool
	}{
		{"no key", "the key may be on another machine", remote.KeyUnreadable, false, false},
		{"no password", "a variable is not set in this shell", remote.SecretUnreadable, false, false},
		{"unknown", "this machine has not seen it before", remote.HostKeyUnknown, false, false},
		{"this machine", "it is this machine, and sudo fails", remote.SudoFailed, true, false},
		{"dead", "it does not answer", remote.Unreachable, false, true},
		{"another machine", "it was reinstalled", remote.HostKeyChanged, false, true},
		{"not ours", "another machine has its address and rejects the login", remote.AuthFailed, false, true},
		{"no longer ours", "Slipway cannot change it", remote.SudoFailed, false, true},
	} {
		for kind, r := range map[string]Request{"cluster": cluster, "node": node} {
			t.Run(tc.name+" "+kind, func(t *testing.T) {
				w := newWorld(t, "cp1", "w1")
				c := w.Manifest()
				if tc.here {
					c.Spec.Hosts[1].Address, c.Spec.Hosts[1].InternalAddress = "localhost", w.Hosts["w1"].Address
				}
				w.do(creating(c), event.Succeeded)
				w.Hosts["w1"].Down = &remote.Error{Host: "w1", Reason: tc.is, Cause: "it is not to be had", Remedy: "mend it"}
				p, err := w.service().Prepare(t.Context(), r, nil)
				if tc.given {
					w.prepared(p, err)
					return
				}
				refusal(t, err, string(tc.is))
				if err != nil && (!strings.Contains(err.Error(), "mend it (--forget does not help") || !strings.Contains(err.Error(), "--forget")) {
					t.Errorf("the error does not have the remedy and the note about --forget: %v", err)
				}
				if c, err := w.service().Cluster(t.Context(), "prod"); err != nil || len(c.Spec.Hosts) != 2 {
					t.Errorf("%v: the saved cluster is gone: %s", err, tc.reason)
				}
			})
		}
	}
}

// A host that remains saved can be skipped, whatever the reason.
func TestIgnoreErrors_SkipsSavedHosts(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]Request{
		"a delete": DeleteRequest{Subject: Subject{Name: "prod"}, Options: Options{IgnoreErrors: true}},
		"another host than the removed one": DeleteNodesRequest{
			Name: "prod", Options: Options{IgnoreErrors: true}, Nodes: []string{"w2"}, Forget: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := running(t, threeAndTwo, threeAndTwo)
			w.Hosts["cp2"].Down = &remote.Error{Host: "cp2", Reason: remote.KeyUnreadable, Cause: "there is no key", Remedy: "name one"}
			p := w.prepared(w.service().Prepare(t.Context(), r, nil))
			if f := p.Failures(); len(f) != 1 || f[0].Host != "cp2" {
				t.Errorf("failures of the plan %+v, want cp2", f)
			}
		})
	}
}

// Every change of hosts connects to a control plane that is down. The hint offers to
// continue without it, which works.
func TestChangeNodes_CanContinueWithoutDeadHost(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		request      func(*world) Request
		down         string
		offered      bool
	}{
		{
			"delete another", "the worker does not depend on it",
			func(*world) Request { return DeleteNodesRequest{Name: "prod", Nodes: []string{"w1"}} }, "cp2", true,
		},
		{
			"add another", "a new worker does not depend on it",
			func(w *world) Request {
				return AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{w.flag("w3")}}
			}, "cp2", true,
		},
		{"apply", "other hosts do not depend on it", func(w *world) Request {
			return applying(w.of(append(threeAndTwo, "w3")...))
		}, "cp2", true},
		{
			"add it", "nothing would be left to do",
			func(w *world) Request {
				return AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{w.flag("w3")}}
			}, "w3", false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, append(threeAndTwo, "w3"), threeAndTwo)
			w.Hosts[tc.down].Down = errDown
			w.API.StopMember(tc.down)
			r := tc.request(w)
			_, err := w.service().Prepare(t.Context(), r, nil)
			refusal(t, err, string(remote.Unreachable))
			const want = "start it, or continue without this host for now: --ignore-errors"
			if err != nil && strings.Contains(err.Error(), want) != tc.offered {
				t.Errorf("%v: the error has %q, want %t: %s", err, want, tc.offered, tc.reason)
			}
			if tc.offered {
				w.do(despiteErrors(r), event.Partial)
				w.wantPhase(v1alpha1.PhaseFailed)
			}
		})
	}
}

// A kubelet must not be newer than an API server that it uses, and an unreachable API server
// may still serve. An upgrade or rollback does not skip a host if that could happen.
func TestUpgrade_DoesNotSkipNeededHosts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason, down string
		prepare            func(*Service, Options) (Prepared, error)
		offered            bool
	}{
		{"resume, a control plane", "workers would be newer than its API server", "cp3", func(s *Service, o Options) (Prepared, error) {
			return s.PrepareResume(t.Context(), ResumeRequest{Subject: Subject{Name: "prod"}, Options: o}, nil)
		}, false},
		{"resume, a worker", "it is older than all API servers", "w2", func(s *Service, o Options) (Prepared, error) {
			return s.PrepareResume(t.Context(), ResumeRequest{Subject: Subject{Name: "prod"}, Options: o}, nil)
		}, true},
		{"rollback, a worker", "it would be newer than the API servers", "w2", func(s *Service, o Options) (Prepared, error) {
			return s.PrepareRollback(t.Context(), RollbackRequest{Name: "prod", Options: o}, nil)
		}, false},
		{"rollback, a control plane", "its own kubelet would be newer too", "cp3", func(s *Service, o Options) (Prepared, error) {
			return s.PrepareRollback(t.Context(), RollbackRequest{Name: "prod", Options: o}, nil)
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := aged(t, threeAndTwo...)
			w.refusing("w1", "kubernetes.programs")
			w.do(toNewest, event.Failed)
			w.Hosts["w1"].Refuse, w.Hosts[tc.down].Down = nil, errDown
			_, err := tc.prepare(w.service(), Options{})
			refusal(t, err, string(remote.Unreachable))
			if err != nil &&
				(strings.Contains(err.Error(), "--ignore-errors") != tc.offered ||
					strings.Contains(err.Error(), "delete node "+tc.down+" --forget") == tc.offered) {
				t.Errorf("%v: want the offer to continue without it: %t: %s", err, tc.offered, tc.reason)
			}
			p, err := tc.prepare(w.service(), Options{IgnoreErrors: true})
			if tc.offered {
				w.prepared(p, err)
				return
			}
			if err == nil {
				w.prepared(p, err)
			}
			refusal(t, err, string(remote.Unreachable))
			if err != nil && !strings.Contains(err.Error(), "delete node "+tc.down+" --forget") {
				t.Errorf("%v does not name the command to remove the host", err)
			}
		})
	}
}
