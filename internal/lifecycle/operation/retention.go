package operation

import (
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
)

// A Need is how much of the record of an operation a later operation of the cluster may read.
type Need int

// The needs. Each includes the ones before it.
const (
	// NeedsNothing is for an operation that is finished for good.
	NeedsNothing Need = iota
	// NeedsRecord is for an operation that must be listed, with its plan. Its journal is not read.
	NeedsRecord
	// NeedsJournal is for an operation whose complete journal may be read.
	NeedsJournal
)

// NeedsOf returns the need of each operation of one cluster. ops are all of them, newest first.
//
// A successful change of the cluster finishes all earlier attempts at once, so that only the
// operations since then can be resumed or rolled back. The latest such success is the base: a
// rollback returns to its plan. These operations are needed besides:
//
//   - Since the base, each operation that began and can be resumed, with its journal. After an
//     unfinished change, later successes too: nodes may be between two runtimes.
//   - Since the base, forgotten hosts, which its plan still has, and successful rotations, which
//     finish earlier ones.
//   - The latest operation, the base, and the latest creation, with their plans.
//   - The latest upgrade with its journal: a rollback reads how far it has come.
//   - Each unfinished rotation: only rotations of the same CAs and keys finish it. These are needed
//     while it is in the list.
//   - Each unfinished restore or rescue of etcd: only another one, or a new cluster, finishes it.
//   - All restores and rescues since the creation: their number decides the next revision of etcd.
//   - The latest operation for an intent of the object of the cluster, and the latest one of each kind that was due:
//     without it, the management plane would request it again.
//
// A need never grows when operations are added, so that a list that is a little old does no harm.
// The readers are in package history, whose tests compare them with this rule.
func NeedsOf(ops []v1alpha1.Operation) []Need {
	find := func(is func(*v1alpha1.Operation) bool) int {
		for i := range ops {
			if is(&ops[i]) {
				return i
			}
		}
		return len(ops)
	}
	h := sequence{
		base:     find(isBase),
		creation: find(func(o *v1alpha1.Operation) bool { return Kind(o.Spec.Kind).CreatesCluster() && !IsRequest(o) }),
		begun:    find(func(o *v1alpha1.Operation) bool { return Kind(o.Spec.Kind).CreatesCluster() && hasBegun(o) }),
		upgrade:  find(func(o *v1alpha1.Operation) bool { return IsUpgrade(o) && hasBegun(o) }),
		newData:  find(func(o *v1alpha1.Operation) bool { return Kind(o.Spec.Kind).ReplacesEtcdData() && succeeded(o) }),
		latest:   find(hasBegun),
		intent:   find(decidesIntent),
		change:   -1,
	}
	for i := range ops[:h.base] {
		if hasBegun(&ops[i]) && !succeeded(&ops[i]) && Kind(ops[i].Spec.Kind).changesDescription() {
			h.change = i
		}
	}
	rotations := UnfinishedRotations(ops)
	needs := make([]Need, len(ops))
	oldest := -1 // rotation that has not succeeded
	for i := range ops {
		if Kind(ops[i].Spec.Kind) == RotateCA && hasBegun(&ops[i]) && !succeeded(&ops[i]) {
			oldest = i
		}
	}
	for i := range ops {
		needs[i] = h.needOf(i, &ops[i])
		switch {
		case isLatestScheduled(ops[:i], &ops[i]):
			needs[i] = max(needs[i], NeedsRecord)
		case slices.Contains(rotations, &ops[i]):
			needs[i] = NeedsJournal
		case i < oldest && Kind(ops[i].Spec.Kind) == RotateCA && succeeded(&ops[i]):
			needs[i] = max(needs[i], NeedsRecord) // it can have finished a part of the older one
		}
	}
	return needs
}

// A sequence has positions in a list of operations, newest first. A position after the end means that
// there is none.
type sequence struct {
	base, creation, upgrade int // the latest
	begun                   int // the latest creation that began
	newData                 int // the latest successful restore or rescue of etcd
	latest                  int // the latest that began
	intent                  int // the latest that has decided about an intent
	change                  int // the first unfinished change since the base; -1 if there is none
}

func (h sequence) needOf(i int, o *v1alpha1.Operation) Need {
	kind, sinceBase := Kind(o.Spec.Kind), i < h.base
	switch {
	case !kind.Known(), isWaiting(o), i == h.upgrade:
		return NeedsJournal
	case sinceBase && hasBegun(o) && !succeeded(o) && (kind.Resumable() || i == h.latest):
		return NeedsJournal
	case sinceBase && succeeded(o) && i < h.change:
		return NeedsJournal
	case kind.ReplacesEtcdData() && hasBegun(o) && !succeeded(o) && i < min(h.newData, h.creation):
		return NeedsJournal
	case i == h.latest, i == h.base, i == h.creation, i == h.intent, sinceBase && (HasForgottenNodes(o) || kind == RotateCA && succeeded(o)):
		return NeedsRecord
	case kind.ReplacesEtcdData() && hasBegun(o) && i < h.begun:
		return NeedsRecord
	}
	return NeedsNothing
}

// isBase reports whether an operation has finished all earlier attempts.
func isBase(o *v1alpha1.Operation) bool {
	kind := Kind(o.Spec.Kind)
	return kind.Known() && kind.Supersedes() && succeeded(o)
}

// decidesIntent reports whether an operation is for an intent, and was not withdrawn. One that waits can still be
// withdrawn.
func decidesIntent(o *v1alpha1.Operation) bool {
	return o.Spec.IntentDigest != "" && (HasEnded(o) || hasBegun(o)) && o.Status.State != v1alpha1.OperationSuperseded
}

// isLatestScheduled reports whether an operation was due, and none of the newer ones of its kind was.
func isLatestScheduled(newer []v1alpha1.Operation, o *v1alpha1.Operation) bool {
	return o.Annotations[AnnotationScheduled] != "" && !slices.ContainsFunc(newer, func(n v1alpha1.Operation) bool {
		return n.Spec.Kind == o.Spec.Kind && n.Annotations[AnnotationScheduled] != ""
	})
}

// changesDescription reports whether a kind has an effect on the saved description of the cluster.
func (k Kind) changesDescription() bool {
	return k.CreatesCluster() || k.ChangesCluster() || k.RemovesCluster()
}

// succeeded reports whether an operation has begun and succeeded.
func succeeded(o *v1alpha1.Operation) bool {
	return hasBegun(o) && o.Status.State == v1alpha1.OperationSucceeded
}

// hasBegun reports whether an operation may have changed something. One without a start has ended
// before its first step.
func hasBegun(o *v1alpha1.Operation) bool { return o.Status.StartTime != nil }

// isWaiting reports whether an operation has not begun yet. An earlier operation that counts as
// running was interrupted if a later one has succeeded: a cluster has one lock.
func isWaiting(o *v1alpha1.Operation) bool { return !hasBegun(o) && !HasEnded(o) }

// HasEnded reports whether an operation has a state that only an end gives.
func HasEnded(o *v1alpha1.Operation) bool {
	switch o.Status.State {
	case v1alpha1.OperationSucceeded, v1alpha1.OperationFailed, v1alpha1.OperationCancelled, v1alpha1.OperationSuperseded:
		return true
	}
	return false
}
