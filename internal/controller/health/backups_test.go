package health

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/node/op"
)

// ended returns an operation with a result.
func ended(at time.Time, result *v1alpha1.BackupResult) v1alpha1.Operation {
	var o v1alpha1.Operation
	end := metav1.NewTime(at)
	o.Status.StartTime, o.Status.EndTime, o.Status.Backup = &end, &end, result
	return o
}

// TestSummary_ShowsLatestBackup compares automatic snapshots with the results of operations.
func TestSummary_ShowsLatestBackup(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	made := func(ago time.Duration, host string) *v1alpha1.BackupResult {
		return &v1alpha1.BackupResult{Taken: metav1.NewTime(now.Add(-ago)), Host: host}
	}
	failed := made(time.Hour, "cp2")
	failed.Verdict = v1alpha1.RestoreTestFailed
	const passed = v1alpha1.RestoreTestPassed
	of := func(result *v1alpha1.BackupResult) []v1alpha1.Operation {
		return []v1alpha1.Operation{ended(now, result)}
	}
	for name, tc := range map[string]struct {
		before     time.Duration // of a backup in the status, 0 for none
		operations []v1alpha1.Operation
		backup     string
		verdict    v1alpha1.RestoreTestVerdict
	}{
		"automatic only":       {backup: "cp1", verdict: passed},
		"earlier operation":    {operations: of(made(2*time.Hour, "cp2")), backup: "cp1", verdict: passed},
		"later operation":      {operations: of(made(time.Minute, "cp2")), backup: "cp2", verdict: passed},
		"failed test":          {operations: of(failed), backup: "cp1", verdict: v1alpha1.RestoreTestFailed},
		"archived operation":   {before: time.Minute, backup: "status", verdict: passed},
		"status of wrong time": {before: -time.Hour * 9000, backup: "cp1", verdict: passed},
	} {
		t.Run(name, func(t *testing.T) {
			c := newFleet(t, "prod").object["prod"]
			if tc.before != 0 {
				c.Status.Summary = &v1alpha1.ClusterSummary{
					LastBackup: &v1alpha1.BackupSummary{Time: metav1.NewTime(now.Add(-tc.before)), Host: "status"},
				}
			}
			is := newCluster(c, now)
			is.hosts, is.asked = healthy(), now
			is.hosts.Backups = true
			is.hosts.Schedules = []inspect.ScheduledHost{{Host: "cp1", AutoSnapshotOutcome: &op.AutoSnapshotOutcome{
				Kept: []op.KeptSnapshot{{Taken: now.Add(-time.Hour)}}, Drill: &op.DrillOutcome{At: now.Add(-time.Hour)},
			}}}
			is.addOperations(tc.operations)
			got, _ := New(Config{Now: func() time.Time { return now }}).evaluate(is, c, now)
			if s := got.Summary; s.LastBackup.Host != tc.backup || s.LastRestoreTest.Verdict != tc.verdict {
				t.Errorf("the summary has %+v and %+v, want a backup of %s and %s", s.LastBackup, s.LastRestoreTest, tc.backup, tc.verdict)
			}
		})
	}
}

// TestProber_ProbesHostsAfterOperation ends an operation long before the next probe.
func TestProber_ProbesHostsAfterOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "prod")
		f.operations = []v1alpha1.Operation{ended(time.Now().Add(-time.Minute), nil)}
		p := New(Config{Times: Times{Period: time.Hour, HostsPeriod: 100000 * time.Hour}, Client: f, Source: f, Now: time.Now})
		key := types.NamespacedName{Namespace: "team", Name: "prod"}
		look := func(want int, why string) {
			t.Helper()
			if _, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
			got, queue := 0, p.queues[probeHosts]
			for ; queue.Len() > 0; got++ {
				task, _ := queue.Get()
				queue.Done(task)
			}
			if got != want {
				t.Errorf("%s: %d probes of hosts, want %d", why, got, want)
			}
		}
		look(0, "an operation from before the start")
		pass(time.Minute)
		f.operations = append(f.operations, ended(time.Now(), nil))
		look(1, "an operation has ended")
		look(0, "the same operation")
		for _, queue := range p.queues {
			queue.ShutDown()
		}
	})
}
