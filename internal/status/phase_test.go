package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

var phases = []v1alpha1.Phase{
	Gone, v1alpha1.PhasePending, v1alpha1.PhasePrechecking, v1alpha1.PhaseCreating, v1alpha1.PhaseRunning,
	v1alpha1.PhaseScaling, v1alpha1.PhaseUpgrading, v1alpha1.PhaseReconfiguring, v1alpha1.PhasePaused,
	v1alpha1.PhaseFailed, v1alpha1.PhaseDeleting,
}

// The whole table, as a person reads it: a row is from, a column is to.
func TestMove_AllowsLegalTransitions(t *testing.T) {
	want := map[v1alpha1.Phase]string{
		//                          . Pe Ch Cr Ru Sc Up Re Pa Fa De
		Gone:                        "x  x  x  x  .  .  .  .  .  x  x ",
		v1alpha1.PhasePending:       "x  x  x  x  .  .  .  .  .  .  x ",
		v1alpha1.PhasePrechecking:   "x  x  x  x  x  x  x  x  x  x  x ",
		v1alpha1.PhaseCreating:      ".  .  .  x  x  .  .  .  x  x  . ",
		v1alpha1.PhaseRunning:       ".  .  x  .  x  x  x  x  x  .  x ",
		v1alpha1.PhaseScaling:       ".  .  .  .  x  x  .  .  x  x  . ",
		v1alpha1.PhaseUpgrading:     ".  .  .  .  x  .  x  .  x  x  . ",
		v1alpha1.PhaseReconfiguring: ".  .  .  .  x  .  .  x  x  x  . ",
		v1alpha1.PhasePaused:        ".  .  x  x  x  x  x  x  x  .  x ",
		v1alpha1.PhaseFailed:        ".  .  x  x  .  x  x  x  .  x  x ",
		v1alpha1.PhaseDeleting:      "x  .  .  .  .  .  .  .  x  x  x ",
	}
	got := map[v1alpha1.Phase]string{}
	for _, from := range phases {
		for _, to := range phases {
			mark := ".  "
			if IsLegalTransition(from, to) {
				mark = "x  "
			}
			got[from] += mark
		}
		got[from] = got[from][:len(got[from])-1]
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("legal moves (-want +got):\n%s", d)
	}
	if _, err := MovePhase(v1alpha1.PhaseDeleting, v1alpha1.PhaseRunning); err == nil {
		t.Error("from Deleting to Running: want an error")
	}
}

// For every operation that may begin and every outcome, the transitions are legal; and a
// cluster whose process was killed can be used again.
func TestOperations_MoveLegally(t *testing.T) {
	begins := map[operation.Kind][]v1alpha1.Phase{
		"create":        {Gone, v1alpha1.PhasePending, v1alpha1.PhaseRunning, v1alpha1.PhaseFailed, v1alpha1.PhasePaused},
		"apply":         {v1alpha1.PhaseRunning, v1alpha1.PhaseFailed, v1alpha1.PhasePaused},
		"upgrade":       {v1alpha1.PhaseRunning, v1alpha1.PhaseFailed, v1alpha1.PhasePaused},
		"delete":        {Gone, v1alpha1.PhaseRunning, v1alpha1.PhaseFailed, v1alpha1.PhasePaused, v1alpha1.PhasePending},
		"rollback":      {v1alpha1.PhaseFailed, v1alpha1.PhasePaused},
		"init-os":       phases,
		"init-registry": phases,

		"etcd-defrag":   phases,
		"etcd-drill":    phases,
		"etcd-snapshot": phases,
		"etcd-restore":  {v1alpha1.PhaseRunning, v1alpha1.PhaseFailed, v1alpha1.PhasePaused},
		"etcd-rescue":   {v1alpha1.PhaseRunning, v1alpha1.PhaseFailed, v1alpha1.PhasePaused},
	}
	for kind, from := range begins {
		for _, now := range from {
			during, err := MovePhase(now, PhaseDuring(kind, now))
			if err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			for _, o := range []event.Outcome{event.Succeeded, event.Failed, event.Partial, event.Cancelled} {
				after := PhaseAfter(kind, o, during)
				if !IsLegalTransition(during, after) {
					t.Errorf("%s in %q, %s: cannot go to %q", kind, during, o, after)
				}
			}
		}
	}
	for _, p := range phases {
		s := SettledPhase(p)
		if !IsLegalTransition(p, s) || (p != Gone && !IsLegalTransition(s, v1alpha1.PhaseDeleting)) {
			t.Errorf("a cluster left in %q settles as %q: want a way on to Deleting", p, s)
		}
	}
}

func TestAfter_ReturnsThePhase(t *testing.T) {
	for _, tc := range []struct {
		kind    operation.Kind
		reason  string
		outcome event.Outcome
		want    v1alpha1.Phase
	}{
		{"create", "it runs", event.Succeeded, v1alpha1.PhaseRunning},
		{"apply", "hosts were left behind", event.Partial, v1alpha1.PhaseFailed},
		{"apply", "it can be resumed", event.Cancelled, v1alpha1.PhasePaused},
		{"delete", "nothing is left", event.Succeeded, Gone},
		{"rollback", "nothing is left", event.Succeeded, Gone},
		{"init-os", "no cluster was touched", event.Failed, v1alpha1.PhaseRunning},
	} {
		if got := PhaseAfter(tc.kind, tc.outcome, v1alpha1.PhaseRunning); got != tc.want {
			t.Errorf("after %s %s: %q, want %q: %s", tc.kind, tc.outcome, got, tc.want, tc.reason)
		}
	}
}
