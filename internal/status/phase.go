package status

import (
	"fmt"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// Gone is the phase of a cluster that does not exist: before it is recorded, and after a
// delete. A cluster without a saved status has it too, for example if a delete was interrupted while
// it removed the records.
const Gone v1alpha1.Phase = ""

// busy lists the phases in which an operation works on the cluster.
var busy = []v1alpha1.Phase{
	v1alpha1.PhaseCreating, v1alpha1.PhaseScaling, v1alpha1.PhaseUpgrading, v1alpha1.PhaseReconfiguring,
}

// moves lists the legal transitions. Staying in a phase is always legal, for a resume
// after a killed process.
var moves = map[v1alpha1.Phase][]v1alpha1.Phase{
	Gone: {
		v1alpha1.PhasePending, v1alpha1.PhasePrechecking, v1alpha1.PhaseCreating, v1alpha1.PhaseDeleting, v1alpha1.PhaseFailed,
	},
	v1alpha1.PhasePending: {v1alpha1.PhasePrechecking, v1alpha1.PhaseCreating, v1alpha1.PhaseDeleting, Gone},
	v1alpha1.PhasePrechecking: append(slices.Clone(busy), v1alpha1.PhasePending, v1alpha1.PhaseRunning,
		v1alpha1.PhasePaused, v1alpha1.PhaseFailed, v1alpha1.PhaseDeleting, Gone),

	v1alpha1.PhaseCreating:      ended,
	v1alpha1.PhaseScaling:       ended,
	v1alpha1.PhaseUpgrading:     ended,
	v1alpha1.PhaseReconfiguring: ended,

	v1alpha1.PhaseRunning: {
		v1alpha1.PhasePrechecking, v1alpha1.PhaseScaling, v1alpha1.PhaseUpgrading,
		v1alpha1.PhaseReconfiguring, v1alpha1.PhasePaused, v1alpha1.PhaseDeleting,
	},
	v1alpha1.PhasePaused: append(slices.Clone(busy), v1alpha1.PhasePrechecking, v1alpha1.PhaseRunning, v1alpha1.PhaseDeleting),
	v1alpha1.PhaseFailed: append(slices.Clone(busy), v1alpha1.PhasePrechecking, v1alpha1.PhaseDeleting),

	// A cluster that is being deleted cannot return to another phase.
	v1alpha1.PhaseDeleting: {Gone, v1alpha1.PhaseFailed, v1alpha1.PhasePaused},
}

// ended lists the phases after an operation.
var ended = []v1alpha1.Phase{v1alpha1.PhaseRunning, v1alpha1.PhaseFailed, v1alpha1.PhasePaused}

// IsLegalTransition reports whether the phase of a cluster may change in this way.
func IsLegalTransition(from, to v1alpha1.Phase) bool {
	return from == to || slices.Contains(moves[from], to)
}

// MovePhase returns to, or an error if the transition is not legal.
func MovePhase(from, to v1alpha1.Phase) (v1alpha1.Phase, error) {
	if !IsLegalTransition(from, to) {
		return from, fmt.Errorf("a cluster cannot go from phase %q to %q", from, to)
	}
	return to, nil
}

// SettledPhase returns the phase of a cluster whose process was killed: no operation works on
// it, although its record says so.
func SettledPhase(p v1alpha1.Phase) v1alpha1.Phase {
	if slices.Contains(busy, p) || p == v1alpha1.PhaseDeleting {
		return v1alpha1.PhaseFailed
	}
	return p
}

// PhaseDuring returns the phase while an operation of a kind works on a cluster in phase now. A
// create that is resumed can find a running cluster: its process has saved the status of the
// cluster, but not the end of the operation.
func PhaseDuring(kind operation.Kind, now v1alpha1.Phase) v1alpha1.Phase {
	p, ok := kind.Phase()
	switch {
	case !ok:
		return now
	case kind.CreatesCluster() && now == v1alpha1.PhaseRunning:
		return v1alpha1.PhaseReconfiguring
	}
	return p
}

// PhaseAfter returns the phase when an operation has ended. A cancelled operation can be
// resumed; one that left hosts unfinished has failed.
func PhaseAfter(kind operation.Kind, o event.Outcome, now v1alpha1.Phase) v1alpha1.Phase {
	during, ok := kind.Phase()
	switch {
	case !ok:
		return now
	case o == event.Cancelled, o == event.Paused:
		return v1alpha1.PhasePaused
	case o != event.Succeeded:
		return v1alpha1.PhaseFailed
	case during == v1alpha1.PhaseDeleting:
		return Gone
	}
	return v1alpha1.PhaseRunning
}
