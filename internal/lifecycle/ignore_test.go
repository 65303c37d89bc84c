package lifecycle

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/remote"
)

// An operation that ignores errors is partial without failed hosts, and a resume or an
// apply completes it.
func TestIgnoreErrors_ContinuesWithoutFailedHosts(t *testing.T) {
	t.Parallel()
	t.Run("one host does not answer", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1", "w2")
		w.Hosts["w2"].Down = errDown
		s := w.service()
		_, err := s.Prepare(t.Context(), creating(w.Manifest()), nil)
		refusal(t, err, string(remote.Unreachable))
		p := w.prepared(s.Prepare(t.Context(), CreateRequest{Subject: Subject{Cluster: w.Manifest()}, Options: Options{IgnoreErrors: true}}, nil))
		if f := p.Findings(); len(f) != 1 || f[0].Host != "w2" || f[0].Severity != diag.Warning {
			t.Errorf("findings %+v, want the unreachable host", f)
		}
		if f := p.Failures(); len(f) != 1 || f[0].Host != "w2" || f[0].Reason != string(remote.Unreachable) {
			t.Errorf("failures of the plan %+v, want w2", f)
		}
		res := w.do(CreateRequest{Subject: Subject{Cluster: w.Manifest()}, Options: Options{IgnoreErrors: true}}, event.Partial)
		if len(res.Failures) != 1 || res.Failures[0].Host != "w2" || res.Failures[0].Remedy == "" {
			t.Errorf("failures %+v, want w2 with a remedy", res.Failures)
		}
		if !strings.Contains(res.Ready[0], "2 nodes: cp1, w1") {
			t.Errorf("ready: %q", res.Ready)
		}
		w.wantStatus(v1alpha1.PhaseFailed, "create Failed")
		o, err := s.Operation(t.Context(), res.Operation)
		if want := "connect to host: w2: w2 does not answer"; err != nil || o.Status.Message != want {
			t.Errorf("the message of the operation is %q (%v), want %q", o.Status.Message, err, want)
		}
		w.Hosts["w2"].Down = nil
		w.resume(event.Succeeded)
		w.wantStatus(v1alpha1.PhaseRunning, "create Succeeded")
		w.whole()
	})
	t.Run("a host cannot be checked", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		w.create(event.Succeeded)
		w.Hosts["w1"].Uncheckable = op.KindSysctl
		_, err := w.service().Prepare(t.Context(), applying(w.Manifest()), nil)
		refusal(t, err, idCheckFailed)
		p := w.prepared(w.service().Prepare(t.Context(), despiteErrors(applying(w.Manifest())), nil))
		if f := p.Failures(); len(f) == 0 || f[0].Host != "w1" {
			t.Errorf("failures of the plan %+v, want w1", f)
		}
		if f := p.Findings().Warnings(); !slices.ContainsFunc(f,
			func(d diag.Diagnostic) bool { return d.ID == idCheckFailed && d.Host == "w1" }) {
			t.Errorf("findings %+v, want the failed check", f)
		}
		res := w.apply(p, event.Partial)
		if len(res.Failures) == 0 || res.Failures[0].Host != "w1" {
			t.Errorf("failures %+v, want w1", res.Failures)
		}
	})
	t.Run("a partial creation can be completed by apply", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1", "w2")
		w.Hosts["w2"].Down = errDown
		w.do(CreateRequest{Subject: Subject{Cluster: w.Manifest()}, Options: Options{IgnoreErrors: true}}, event.Partial)
		w.Hosts["w2"].Down = nil
		res := w.do(applying(w.Manifest()), event.Succeeded)
		if !strings.Contains(res.Operation, "-apply-") {
			t.Errorf("operation %s, want an apply", res.Operation)
		}
		w.whole()
	})
	t.Run("the first control plane fails", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		w.Hosts["cp1"].Refuse = breaking("kubeadm.init.certs")
		w.do(CreateRequest{Subject: Subject{Cluster: w.Manifest()}, Options: Options{IgnoreErrors: true}}, event.Failed)
	})
	t.Run("deleting without a host keeps state", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		w.create(event.Succeeded)
		w.Hosts["w1"].Down = errDown
		res := w.do(despiteErrors(DeleteRequest{Subject: Subject{Name: "prod"}}), event.Partial)
		if res.Failures[0].Host != "w1" {
			t.Errorf("failures %+v", res.Failures)
		}
		w.wantStatus(v1alpha1.PhaseFailed, "delete Failed", "create Succeeded")
		again := w.prepared(w.service().Prepare(t.Context(), despiteErrors(DeleteRequest{Subject: Subject{Name: "prod"}}), nil))
		if r := again.Plan().Removes; len(r) > 0 {
			t.Errorf("the plan removes %q, want nothing: w1 is unreachable, and state is kept", r)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		w.Hosts["w1"].Down = nil
		p := w.prepared(w.service().Prepare(t.Context(), DeleteRequest{Subject: Subject{Name: "prod"}}, nil))
		if d := cmp.Diff([]string{"host w1 and all cluster data on it"}, p.Plan().Removes); d != "" {
			t.Errorf("removed after cp1 (-want +got):\n%s", d)
		}
		w.resume(event.Succeeded)
		w.bare()
		w.wantStatus("", "delete Succeeded", "create Succeeded")
	})
	t.Run("deleting a reinstalled cluster", func(t *testing.T) {
		w := newWorld(t, "cp1")
		w.create(event.Succeeded)
		m := w.Hosts["cp1"]
		m.Files, m.State, m.HasLedger, m.Cluster = map[string]string{}, map[string]string{}, false, "" // reinstalled
		p := w.prepared(w.service().Prepare(t.Context(), DeleteRequest{Subject: Subject{Name: "prod"}}, nil))
		if pl := p.Plan(); pl.IsEmpty() || len(pl.Removes) != 1 || !strings.Contains(pl.Removes[0], "the saved state of cluster prod") {
			t.Errorf("the plan removes %q, want the saved state, which needs confirmation", pl.Removes)
		}
		w.apply(p, event.Succeeded)
		w.wantStatus("", "delete Succeeded", "create Succeeded")
	})
	t.Run("deleting without the control plane", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		w.create(event.Succeeded)
		w.Hosts["cp1"].Down = errDown
		p := w.prepared(w.service().Prepare(t.Context(), despiteErrors(DeleteRequest{Subject: Subject{Name: "prod"}}), nil))
		_, err := p.Apply(t.Context())
		refusal(t, err, "no-lock-majority")
		w.do(DeleteRequest{Subject: Subject{Name: "prod"}, Options: Options{IgnoreErrors: true, BreakLock: true}}, event.Partial)
		if m := w.Hosts["w1"]; m.HasLedger {
			t.Error("w1 is not reset")
		}
	})
}

// A cluster whose hosts are permanently lost can be forgotten. The result names the hosts
// that keep their files.
func TestForgetCluster_RemovesStateDespiteLostHosts(t *testing.T) {
	t.Parallel()
	forget := DeleteRequest{Subject: Subject{Name: "prod"}, Forget: true}
	forgotten := func(t *testing.T, w *world, res *Result, hosts ...string) {
		t.Helper()
		var left []string
		for _, f := range res.Failures {
			left = append(left, f.Host)
		}
		if d := cmp.Diff(hosts, left); d != "" || !res.Forgotten {
			t.Errorf("forgotten: %t; not reset (-want +got):\n%s", res.Forgotten, d)
		}
		w.wantStatus("", "delete Failed", "create Succeeded")
		if names, err := w.service().Records.Clusters().List(t.Context()); err != nil || len(names) > 0 {
			t.Errorf("state has clusters %v, %v", names, err)
		}
		if _, err := w.service().Records.Kubeconfigs().Load(t.Context(), "prod"); !errors.Is(err, records.ErrNotFound) {
			t.Errorf("the kubeconfig: %v", err)
		}
		o, err := w.service().Operation(t.Context(), res.Operation)
		if err != nil || !strings.Contains(o.Status.Message, hosts[0]) {
			t.Errorf("the message of the operation is %q (%v), want %s in it", o.Status.Message, err, hosts[0])
		}
	}
	t.Run("a host", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		w.create(event.Succeeded)
		w.Hosts["w1"].Down = errDown
		p := w.prepared(w.service().Prepare(t.Context(), forget, nil))
		want := []string{
			"host cp1 and all cluster data on it",
			"the saved state of host w1; all cluster data remains on the host: w1 does not answer",
		}
		if d := cmp.Diff(want, p.Plan().Removes); d != "" {
			t.Errorf("what is removed (-want +got):\n%s", d)
		}
		forgotten(t, w, w.apply(p, event.Partial), "w1")
		if w.Hosts["cp1"].HasLedger {
			t.Error("cp1 is not reset")
		}
		// The host comes back, and the saved operation can be resumed.
		w.Hosts["w1"].Down = nil
		w.resume(event.Succeeded)
		w.bare()
		w.wantStatus("", "delete Succeeded", "create Succeeded")
	})
	t.Run("all hosts", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		w.create(event.Succeeded)
		w.Hosts["cp1"].Down, w.Hosts["w1"].Down = errDown, errDown
		p := w.prepared(w.service().Prepare(t.Context(), forget, nil))
		if p.Plan().IsEmpty() {
			t.Error("the plan is empty: no confirmation would be asked for")
		}
		forgotten(t, w, w.apply(p, event.Partial), "cp1", "w1")
	})
	t.Run("no majority", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		w.create(event.Succeeded)
		w.Hosts["cp1"].Down = errDown
		p := w.prepared(w.service().Prepare(t.Context(), forget, nil))
		_, err := p.Apply(t.Context())
		refusal(t, err, "no-lock-majority") // another manager may work on w1, which is reachable
		broken := forget
		broken.BreakLock = true
		res := w.do(broken, event.Partial)
		_, err = w.service().Cluster(t.Context(), "prod")
		if !res.Forgotten || !errors.Is(err, savedstate.ErrNotFound) || w.Hosts["w1"].HasLedger {
			t.Errorf("forgotten: %t, %v; w1 is reset: %t", res.Forgotten, err, !w.Hosts["w1"].HasLedger)
		}
	})
	t.Run("a host of another cluster", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		w.create(event.Succeeded)
		m := w.Hosts["w1"]
		m.Cluster = "lab"
		before := m.AllState()
		_, err := w.service().Prepare(t.Context(), despiteErrors(DeleteRequest{Subject: Subject{Name: "prod"}}), nil)
		refusal(t, err, "other-cluster")
		forgotten(t, w, w.do(forget, event.Partial), "w1")
		if d := cmp.Diff(before, m.AllState()); d != "" {
			t.Errorf("the other cluster's host was changed (-before +after):\n%s", d)
		}
	})
	t.Run("a host that fails", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		w.create(event.Succeeded)
		w.Hosts["w1"].Refuse = breaking("reset.restore")
		forgotten(t, w, w.do(forget, event.Partial), "w1")
	})
	t.Run("a host without its ledger", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		w.create(event.Succeeded)
		m := w.Hosts["w1"]
		m.LostLedger = true
		before := m.AllState()
		_, err := w.service().Prepare(t.Context(), DeleteRequest{Subject: Subject{Name: "prod"}}, nil)
		refusal(t, err, op.IDLedgerLost)
		w.do(despiteErrors(DeleteRequest{Subject: Subject{Name: "prod"}}), event.Partial)
		w.wantStatus(v1alpha1.PhaseFailed, "delete Failed", "create Succeeded")
		res := w.do(forget, event.Partial)
		if f := res.Failures; !res.Forgotten || len(f) == 0 || f[0].Host != "w1" || f[0].Reason != op.IDLedgerLost {
			t.Errorf("forgotten: %t; failures %+v, want w1's", res.Forgotten, f)
		}
		if d := cmp.Diff(before, m.AllState()); d != "" {
			t.Errorf("w1 was changed (-before +after):\n%s", d)
		}
	})
	t.Run("nothing to forget", func(t *testing.T) {
		w := newWorld(t, "cp1")
		w.create(event.Succeeded)
		if res := w.do(forget, event.Succeeded); res.Forgotten {
			t.Error("all hosts were reset, so the cluster was deleted")
		}
		w.bare()
	})
	t.Run("stopped", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		w.create(event.Succeeded)
		w.Hosts["w1"].Down = errDown
		ctx, cancel := context.WithCancel(t.Context())
		w.Hosts["cp1"].OnChange = func(what string) {
			if strings.HasPrefix(what, "reset.kubernetes") {
				cancel()
			}
		}
		p := w.prepared(w.service().Prepare(ctx, forget, nil))
		res, err := p.Apply(ctx)
		if err != nil || res.Forgotten || res.Outcome != event.Cancelled {
			t.Errorf("%+v, %v: a stopped operation must not forget the cluster", res, err)
		}
		w.wantPhase(v1alpha1.PhasePaused)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
