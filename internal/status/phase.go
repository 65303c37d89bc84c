package status

import (
	"fmt"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

// Gone is the phase of a cluster that is not: before its record is made, and
// after a delete.
const Gone v1alpha1.Phase = ""

// busy are the phases in which an operation works on the cluster.
var busy = []v1alpha1.Phase{
	v1alpha1.PhaseCreating, v1alpha1.PhaseScaling, v1alpha1.PhaseUpgrading, v1alpha1.PhaseReconfiguring,
}

// moves are the legal ones. Staying is always legal: a resume goes on where
// a killed process left off.
var moves = map[v1alpha1.Phase][]v1alpha1.Phase{
	Gone:                      {v1alpha1.PhasePending, v1alpha1.PhasePrechecking, v1alpha1.PhaseCreating},
	v1alpha1.PhasePending:     {v1alpha1.PhasePrechecking, v1alpha1.PhaseCreating, v1alpha1.PhaseDeleting, Gone},
	v1alpha1.PhasePrechecking: append(slices.Clone(busy), v1alpha1.PhasePending, v1alpha1.PhaseRunning, v1alpha1.PhasePaused, v1alpha1.PhaseFailed, v1alpha1.PhaseDeleting, Gone),

	v1alpha1.PhaseCreating:      ended,
	v1alpha1.PhaseScaling:       ended,
	v1alpha1.PhaseUpgrading:     ended,
	v1alpha1.PhaseReconfiguring: ended,

	v1alpha1.PhaseRunning: {v1alpha1.PhasePrechecking, v1alpha1.PhaseScaling, v1alpha1.PhaseUpgrading, v1alpha1.PhaseReconfiguring, v1alpha1.PhasePaused, v1alpha1.PhaseDeleting},
	v1alpha1.PhasePaused:  append(slices.Clone(busy), v1alpha1.PhasePrechecking, v1alpha1.PhaseRunning, v1alpha1.PhaseDeleting),
	v1alpha1.PhaseFailed:  append(slices.Clone(busy), v1alpha1.PhasePrechecking, v1alpha1.PhaseDeleting),

	// What is being deleted can only go on being deleted.
	v1alpha1.PhaseDeleting: {Gone, v1alpha1.PhaseFailed, v1alpha1.PhasePaused},
}

// ended is where an operation leads.
var ended = []v1alpha1.Phase{v1alpha1.PhaseRunning, v1alpha1.PhaseFailed, v1alpha1.PhasePaused}

// Legal says whether a cluster's phase may move so.
func Legal(from, to v1alpha1.Phase) bool {
	return from == to || slices.Contains(moves[from], to)
}

// Move answers to, or an error if the move is not legal.
func Move(from, to v1alpha1.Phase) (v1alpha1.Phase, error) {
	if !Legal(from, to) {
		return from, fmt.Errorf("a cluster cannot go from phase %q to %q", from, to)
	}
	return to, nil
}

// Settled is the phase of a cluster on which nothing works any more, though
// its record says otherwise: its process was killed.
func Settled(p v1alpha1.Phase) v1alpha1.Phase {
	if slices.Contains(busy, p) || p == v1alpha1.PhaseDeleting {
		return v1alpha1.PhaseFailed
	}
	return p
}

// During is the phase while an operation of a type (create, apply, delete,
// rollback…) works on a cluster in phase now. A type that only prepares hosts
// leaves it as it is.
func During(kind string, now v1alpha1.Phase) v1alpha1.Phase {
	if p, ok := work[kind]; ok {
		return p
	}
	return now
}

// After is the phase when an operation has ended. A cancelled one can be
// resumed; one that left hosts behind has failed.
func After(kind string, o event.Outcome, now v1alpha1.Phase) v1alpha1.Phase {
	during, ok := work[kind]
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

// work is what the types of operations that touch the cluster do to it.
var work = map[string]v1alpha1.Phase{
	"create":   v1alpha1.PhaseCreating,
	"apply":    v1alpha1.PhaseReconfiguring,
	"delete":   v1alpha1.PhaseDeleting,
	"rollback": v1alpha1.PhaseDeleting,
	"upgrade":  v1alpha1.PhaseUpgrading,

	"rollback-upgrade": v1alpha1.PhaseUpgrading,

	"etcd-restore": v1alpha1.PhaseReconfiguring,
	"etcd-rescue":  v1alpha1.PhaseReconfiguring,

	"add-nodes":    v1alpha1.PhaseScaling,
	"delete-nodes": v1alpha1.PhaseScaling,
}
