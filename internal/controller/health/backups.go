package health

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
)

// maxAhead is how far a time can be ahead of the clock of this process. A later one was made with a wrong clock.
const maxAhead = 5 * time.Minute

// isLater reports whether a time replaces an earlier one in the summary. A time in the future is replaced by any other.
func (e *evaluation) isLater(at, was time.Time) bool {
	limit := e.now.Add(maxAhead)
	return at.Before(limit) && (!at.Before(was) || was.After(limit))
}

// addBackup shows a backup if it is the latest one.
func (e *evaluation) addBackup(taken time.Time, host string, at metav1.Time) {
	if was := e.Summary.LastBackup; was == nil || e.isLater(taken, was.Time.Time) {
		e.Summary.LastBackup = &v1alpha1.BackupSummary{Time: metav1.NewTime(taken.Truncate(time.Second)), Host: host, ObservedTime: at}
	}
}

// addRestoreTest shows a restore test if it is the latest one.
func (e *evaluation) addRestoreTest(ended time.Time, host string, verdict v1alpha1.RestoreTestVerdict, at metav1.Time) {
	if was := e.Summary.LastRestoreTest; was == nil || e.isLater(ended, was.Time.Time) {
		e.Summary.LastRestoreTest = &v1alpha1.RestoreTestSummary{
			Time: metav1.NewTime(ended.Truncate(time.Second)), Host: host, Verdict: verdict, ObservedTime: at,
		}
	}
}

// addOperations shows the backups and restore tests of operations. They are kept after their operations.
func (e *evaluation) addOperations(is *cluster) {
	for _, made := range is.backups {
		if made.Verdict == "" {
			e.addBackup(made.Taken.Time, made.Host, made.ended)
		} else {
			e.addRestoreTest(made.ended.Time, made.Host, made.Verdict, made.ended)
		}
	}
}

// A madeBackup is the result of an operation that has ended.
type madeBackup struct {
	v1alpha1.BackupResult
	ended metav1.Time
}

// addOperations adds the results of operations. It reports whether the hosts have to be probed again, because an
// operation has ended since the latest probe. It reports this once for each operation, and not after a restart.
func (c *cluster) addOperations(all []v1alpha1.Operation) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.backups = nil
	for i := range all {
		s := &all[i].Status
		if s.StartTime == nil || s.EndTime == nil {
			continue
		}
		if s.Backup != nil {
			c.backups = append(c.backups, madeBackup{*s.Backup, *s.EndTime})
		}
		if s.EndTime.After(c.lastEnd) {
			c.lastEnd, changed = s.EndTime.Time, s.EndTime.After(c.since)
		}
	}
	return changed && !c.asked.After(c.lastEnd)
}

// An Observation has the state of the hosts of a cluster, for the schedules of the management plane.
type Observation struct {
	// RenewAfter and RenewEvery are the values of inspect.HealthReport.
	RenewAfter time.Time
	RenewEvery time.Duration
	// LastBackup and LastTest are the times of the latest backup and restore test, of a host or an operation. They are zero
	// if there was none.
	LastBackup, LastTest time.Time
	// BackupEvery and TestEvery are the intervals of the spec, 0 for never.
	BackupEvery, TestEvery time.Duration
}

// Observe returns what the hosts of a cluster have shown since the start of the process. ok is false if no host was
// reached in the latest probe.
func (p *Prober) Observe(key types.NamespacedName) (out Observation, ok bool) {
	is := p.find(key)
	if is == nil {
		return out, false
	}
	is.writing.Lock()
	summary := is.written.Summary.DeepCopy()
	is.writing.Unlock()
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.hosts == nil || is.hostsErr != nil || len(is.hosts.Certificates) == 0 {
		return out, false
	}
	out.RenewAfter, out.RenewEvery = is.hosts.RenewAfter, is.hosts.RenewEvery
	if len(is.hosts.Schedules) > 0 { // a host with etcd was reached
		out.BackupEvery, out.TestEvery = is.hosts.BackupEvery, is.hosts.TestEvery
	}
	if summary.LastBackup != nil {
		out.LastBackup = summary.LastBackup.Time.Time
	}
	if summary.LastRestoreTest != nil {
		out.LastTest = summary.LastRestoreTest.Time.Time
	}
	return out, true
}
