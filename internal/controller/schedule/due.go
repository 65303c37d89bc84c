// Package schedule requests the operations that keep a cluster usable when its hosts have not done so themselves: the
// renewal of certificates, backups of etcd, and tests of these backups. It connects to no host.
package schedule

import (
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/health"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// maxAhead is how far a time can be ahead of the clock of this process. A later one was made with a wrong clock, and
// counts as unknown.
const maxAhead = 5 * time.Minute

// A task is a kind of operation that becomes due.
type task struct {
	kind operation.Kind
	// due is the first time at which it is due, and every is the time between two attempts from then on.
	due   time.Time
	every time.Duration
}

// lateAfter is the number of intervals without a result after which the management plane does the work of the hosts.
const lateAfter = 2

// listTasks returns the tasks of a cluster. begun is the time from which the first interval counts.
func listTasks(seen health.Observation, begun, now time.Time) (out []task) {
	if !seen.RenewAfter.IsZero() {
		out = append(out, task{operation.RenewCerts, seen.RenewAfter, max(seen.RenewEvery, minEvery)})
	}
	for _, regular := range []struct {
		kind  operation.Kind
		every time.Duration
		last  time.Time
	}{
		{operation.SnapshotEtcd, seen.BackupEvery, seen.LastBackup},
		{operation.DrillEtcd, seen.TestEvery, seen.LastTest},
	} {
		if regular.every <= 0 {
			continue
		}
		from := begun
		if regular.last.After(from) && regular.last.Before(now.Add(maxAhead)) {
			from = regular.last
		}
		out = append(out, task{regular.kind, from.Add(lateAfter * regular.every), max(regular.every, minEvery)})
	}
	return out
}

// minEvery is the shortest time between two attempts.
const minEvery = time.Minute

// slot returns the due time to which now belongs: the first one, or a later one after attempts that have changed nothing.
// However much time was missed, there is one slot. ok is false before the first one. next is the time until the next slot.
func (t task) slot(now time.Time) (due time.Time, next time.Duration, ok bool) {
	if now.Before(t.due) {
		return due, t.due.Sub(now), false
	}
	due = t.due.Add(now.Sub(t.due).Truncate(t.every))
	return due, due.Add(t.every).Sub(now), true
}

// isRequested reports whether there is an operation for a due time or a later one, or an unfinished one of the kind. A
// due time in the future was made with a wrong clock.
func (t task) isRequested(due, now time.Time, all []v1alpha1.Operation) bool {
	return slices.ContainsFunc(all, func(o v1alpha1.Operation) bool {
		if o.Spec.Kind != string(t.kind) {
			return false
		}
		if !operation.HasEnded(&o) {
			return true
		}
		at, err := time.Parse(time.RFC3339, o.Annotations[operation.AnnotationScheduled])
		return err == nil && !at.Before(due.Truncate(time.Second)) && at.Before(now.Add(maxAhead))
	})
}
