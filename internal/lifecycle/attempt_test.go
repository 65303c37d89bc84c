package lifecycle

import (
	"errors"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/store"
)

// Whatever was tried in between, there is a way back.
func TestRollbackAfterSeveralAttempts(t *testing.T) {
	t.Run("a cluster that never ran is taken away", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		w.machines["w1"].refuse = breaking("join.kubelet-start")
		w.create(event.Failed)
		w.do(Request{Kind: Apply, Cluster: w.changed()}, event.Failed)
		w.machines["w1"].refuse = nil
		if p, _ := w.rollback(event.Succeeded); len(p.Removes) != 2 {
			t.Errorf("the plan removes %v: want both hosts", p.Removes)
		}
		w.bare()
		w.wantStatus("", "rollback Succeeded", "create Failed", "create Failed")
	})
	t.Run("a cluster that runs without some hosts goes on to run", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1", "w2")
		w.machines["w2"].down = errDown
		w.do(Request{Kind: Create, Cluster: w.cluster(), IgnoreErrors: true}, event.Partial)
		w.machines["w2"].down = nil
		w.machines["w1"].refuse = breaking("kubernetes.kubelet")
		w.do(Request{Kind: Apply, Cluster: w.changed()}, event.Failed)
		w.machines["w1"].refuse = nil
		if p, _ := w.rollback(event.Succeeded); len(p.Removes) > 0 {
			t.Errorf("the plan removes %v: the cluster ran before", p.Removes)
		}
		w.whole()
	})
}

// The record tells of one description: the file that a rollback leaves is the
// one that belongs to it.
func TestRollbackPutsTheFileBack(t *testing.T) {
	for _, tc := range []struct {
		name, reason   string
		first          []byte
		firstOutcome   event.Outcome
		want           string // "" is none
		settled        []byte // an apply in between that needs no operation
		partialBetween bool
	}{
		{name: "created from a file", reason: "it is what the hosts go by again", first: []byte("# first"), firstOutcome: event.Succeeded, want: "# first"},
		{name: "created without one", reason: "what is there belongs to what was taken back", firstOutcome: event.Succeeded},
		{name: "created in part", reason: "there is no other description to go back to", first: []byte("# first"), firstOutcome: event.Partial, want: "# first"},
		{name: "changed meanwhile", reason: "an apply that needs no operation is one", first: []byte("# first"), firstOutcome: event.Succeeded, settled: []byte("# settled"), want: "# settled"},
		{name: "an apply in part", reason: "a rollback goes to what was whole", first: []byte("# first"), firstOutcome: event.Succeeded, partialBetween: true, want: "# first"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1", "w1", "w2")
			if tc.firstOutcome == event.Partial {
				w.machines["w2"].down = errDown
			}
			w.do(Request{Kind: Create, Cluster: w.cluster(), Source: tc.first, IgnoreErrors: true}, tc.firstOutcome)
			w.machines["w2"].down = nil
			if tc.settled != nil {
				c := w.cluster()
				c.Spec.SSH.Password = "changed"
				w.do(Request{Kind: Apply, Cluster: c, Source: tc.settled}, event.Succeeded)
			}
			w.machines["w1"].refuse = breaking("kubernetes.kubelet")
			if tc.partialBetween {
				w.do(Request{Kind: Apply, Cluster: w.changed(), Source: []byte("# partial"), IgnoreErrors: true}, event.Partial)
			}
			w.do(Request{Kind: Apply, Cluster: w.changed(), Source: []byte("# second")}, event.Failed)
			w.machines["w1"].refuse = nil
			if text, err := w.service().Store.Source("prod"); err != nil || string(text) != "# second" {
				t.Errorf("before the rollback the file is %q, %v", text, err)
			}
			w.rollback(event.Succeeded)
			text, err := w.service().Store.Source("prod")
			if err != nil && !errors.Is(err, store.ErrNotFound) || string(text) != tc.want {
				t.Errorf("the file is %q (%v), want %q: %s", text, err, tc.want, tc.reason)
			}
			w.wantPhase(v1alpha1.PhaseRunning)
		})
	}
}

// A host on which an attempt at creating the cluster has put something, and
// that is missing from the next file, would be forgotten with all that.
func TestHostLeftBehind(t *testing.T) {
	w := newWorld(t, "cp1", "w1", "w2")
	w.machines["w2"].refuse = breaking("join.kubelet-start")
	w.create(event.Failed)
	without := w.cluster()
	without.Spec.Hosts = without.Spec.Hosts[:2]
	_, err := w.service().Prepare(t.Context(), Request{Kind: Apply, Cluster: without}, nil)
	refusal(t, err, idHostLeft)

	moved := w.cluster()
	moved.Spec.Hosts[2].Address, w.machines["w2"].address = "192.0.2.99", "192.0.2.99"
	_, err = w.service().Prepare(t.Context(), Request{Kind: Apply, Cluster: moved}, nil)
	refusal(t, err, idHostLeft)
	w.machines["w2"].address = "192.0.2.13"

	named := w.cluster() // the same machine by another name for its address
	named.Spec.Hosts[2].Address = "w2.example.com"
	w.machines["w2"].refuse = nil
	w.do(Request{Kind: Apply, Cluster: named}, event.Succeeded)
	w.wantStatus(v1alpha1.PhaseRunning, "create Succeeded", "create Failed")
}

// A host that was never reached has nothing to lose.
func TestUntouchedHostMayBeLeftOut(t *testing.T) {
	w := newWorld(t, "cp1", "w1", "w2")
	w.machines["cp1"].refuse = breaking("kubeadm.init.certs")
	w.machines["w2"].down = errDown
	w.do(Request{Kind: Create, Cluster: w.cluster(), IgnoreErrors: true}, event.Failed)
	w.machines["cp1"].refuse = nil
	without := w.cluster()
	without.Spec.Hosts = without.Spec.Hosts[:2]
	w.do(Request{Kind: Apply, Cluster: without}, event.Succeeded)
	w.wantPhase(v1alpha1.PhaseRunning)
}
