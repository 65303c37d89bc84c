package schedule

import (
	"testing"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/health"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestTasks_BecomeDue(t *testing.T) {
	hour := time.Hour
	for _, tc := range []struct {
		name, reason string
		seen         health.Observation
		want         map[operation.Kind]time.Time
	}{
		{"nothing", "the spec has no backups, and no certificate is known", health.Observation{}, nil},
		{
			"never", "the hosts have two intervals for the first backup",
			health.Observation{BackupEvery: hour},
			map[operation.Kind]time.Time{operation.SnapshotEtcd: noon.Add(2 * hour)},
		},
		{
			"late", "the latest one counts, of a host or an operation",
			health.Observation{BackupEvery: hour, LastBackup: noon.Add(5 * hour), TestEvery: 24 * hour, LastTest: noon.Add(hour)},
			map[operation.Kind]time.Time{operation.SnapshotEtcd: noon.Add(7 * hour), operation.DrillEtcd: noon.Add(49 * hour)},
		},
		{
			"future", "a host with a wrong clock has made it",
			health.Observation{BackupEvery: hour, LastBackup: noon.Add(9000 * hour)},
			map[operation.Kind]time.Time{operation.SnapshotEtcd: noon.Add(2 * hour)},
		},
		{
			"certificates", "the observation has the time",
			health.Observation{RenewAfter: noon.Add(hour), RenewEvery: hour},
			map[operation.Kind]time.Time{operation.RenewCerts: noon.Add(hour)},
		},
	} {
		got := listTasks(tc.seen, noon, noon.Add(6*hour))
		if len(got) != len(tc.want) {
			t.Errorf("%s (%s): %v, want %v", tc.name, tc.reason, got, tc.want)
		}
		for _, task := range got {
			if !task.due.Equal(tc.want[task.kind]) {
				t.Errorf("%s (%s): %s is due at %s, want %s", tc.name, tc.reason, task.kind, task.due, tc.want[task.kind])
			}
		}
	}
}

func TestSlot_IsOneForAllMissedTimes(t *testing.T) {
	is := task{operation.SnapshotEtcd, noon, time.Hour}
	for _, tc := range []struct {
		name      string
		now       time.Time
		due       time.Time
		next      time.Duration
		beginsNow bool
	}{
		{"before", noon.Add(-time.Minute), time.Time{}, time.Minute, false},
		{"first", noon, noon, time.Hour, true},
		{"same", noon.Add(59 * time.Minute), noon, time.Minute, true},
		{"second", noon.Add(time.Hour), noon.Add(time.Hour), time.Hour, true},
		{"a year", noon.AddDate(1, 0, 0).Add(time.Minute), noon.AddDate(1, 0, 0), 59 * time.Minute, true},
	} {
		due, next, ok := is.slot(tc.now)
		if ok != tc.beginsNow || !due.Equal(tc.due) || next != tc.next {
			t.Errorf("%s: %t at %s, next in %s; want %t at %s, next in %s", tc.name, ok, due, next, tc.beginsNow, tc.due, tc.next)
		}
	}
}

func TestRequest_ExistsOnce(t *testing.T) {
	is := task{operation.SnapshotEtcd, noon, time.Hour}
	of := func(kind operation.Kind, at time.Time, state v1alpha1.OperationState) v1alpha1.Operation {
		var o v1alpha1.Operation
		o.Spec.Kind, o.Status.State = string(kind), state
		if !at.IsZero() {
			o.Annotations = map[string]string{operation.AnnotationScheduled: at.Format(time.RFC3339)}
		}
		return o
	}
	const failed, running = v1alpha1.OperationFailed, v1alpha1.OperationRunning
	for name, tc := range map[string]struct {
		o    v1alpha1.Operation
		want bool
	}{
		"this one":             {of(operation.SnapshotEtcd, noon, failed), true},
		"a later one":          {of(operation.SnapshotEtcd, noon.Add(time.Second), failed), true},
		"an earlier one":       {of(operation.SnapshotEtcd, noon.Add(-time.Hour), failed), false},
		"of a wrong clock":     {of(operation.SnapshotEtcd, noon.AddDate(1, 0, 0), failed), false},
		"of a user":            {of(operation.SnapshotEtcd, time.Time{}, failed), false},
		"an unfinished one":    {of(operation.SnapshotEtcd, time.Time{}, running), true},
		"another kind":         {of(operation.DrillEtcd, noon, failed), false},
		"another one, running": {of(operation.DrillEtcd, noon, running), false},
	} {
		if got := is.isRequested(noon, noon.Add(time.Minute), []v1alpha1.Operation{tc.o}); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
