package controller

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/health"
	"slipway.dev/slipway/internal/controller/schedule"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/testutil/faultproxy"
)

// A timetable is the schedule of a cluster with a simulated clock. No controller runs.
type timetable struct {
	*world
	time time.Time
	seen health.Observation
	is   *schedule.Reconciler
}

// newTimetable returns the schedule of a cluster that was created at its time now.
func newTimetable(t *testing.T, faults bool) *timetable {
	t.Helper()
	w := &timetable{world: prepareWorld(t, "cp1"), time: time.Now().Truncate(time.Second)}
	api := w.api
	if faults {
		w.proxy = faultproxy.New(t, server.Admin)
		random := rand.New(rand.NewPCG(1, 2))
		w.proxy.Inject(func(*http.Request) faultproxy.Fault {
			list := []faultproxy.Fault{faultproxy.Pass, faultproxy.Busy, faultproxy.Broken, faultproxy.Executed, faultproxy.Lost}
			return list[random.IntN(len(list))]
		})
		scheme, err := newScheme()
		if err != nil {
			t.Fatal(err)
		}
		if api, err = client.New(w.proxy.Config(), client.Options{Scheme: scheme}); err != nil {
			t.Fatal(err)
		}
	}
	w.create(w.object("cp1"))
	w.setCreated(metav1.ConditionTrue)
	w.is = &schedule.Reconciler{
		Client: api, Live: api, Observe: func(types.NamespacedName) (health.Observation, bool) { return w.seen, true },
		Jitter: time.Nanosecond, Started: w.time, Now: func() time.Time { return w.time },
	}
	w.is.SetDefaults()
	return w
}

func (w *timetable) setCreated(is metav1.ConditionStatus) {
	w.t.Helper()
	c := w.cluster()
	apimeta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
		Type: savedstate.ConditionCreated, Status: is, Reason: "Running", LastTransitionTime: metav1.NewTime(w.time),
	})
	if err := w.api.Status().Update(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
}

// look lets the schedule look at the cluster, and checks the number of all operations.
func (w *timetable) look(want int, why string) (again time.Duration) {
	w.t.Helper()
	key := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w.cluster())}
	w.eventually(func() string {
		result, err := w.is.Reconcile(w.t.Context(), key)
		again = result.RequeueAfter
		if err != nil {
			return err.Error()
		}
		return ""
	})
	if got := w.operations(); len(got) != want {
		w.t.Errorf("%s: %d operations, want %d", why, len(got), want)
	}
	return again
}

// end ends all operations.
func (w *timetable) end(state v1alpha1.OperationState) {
	w.t.Helper()
	for _, o := range w.operations() {
		o.Status.State = state
		if err := w.api.Status().Update(w.t.Context(), &o); err != nil {
			w.t.Fatal(err)
		}
	}
}

// runInTimetables runs a test with a usual API, and with one that refuses, loses and delays requests.
func runInTimetables(t *testing.T, test func(*timetable)) {
	t.Helper()
	for name, faults := range map[string]bool{"usual": false, "faults": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newTimetable(t, faults))
		})
	}
}

// TestSchedule_RequestsOnce has backups that no host has taken.
func TestSchedule_RequestsOnce(t *testing.T) {
	runInTimetables(t, func(w *timetable) {
		w.seen = health.Observation{BackupEvery: time.Hour}
		if again := w.look(0, "a new cluster"); again <= 0 || again > time.Minute {
			w.t.Errorf("the next look is in %s, want a minute at most", again)
		}
		w.time = w.time.Add(2 * time.Hour)
		w.look(1, "two intervals without a backup")
		w.look(1, "the operation is unfinished")
		w.time = w.time.Add(3 * time.Hour)
		w.look(1, "the operation is unfinished after later due times")
		w.end(v1alpha1.OperationFailed)
		w.look(2, "a later due time after a failure")
		w.end(v1alpha1.OperationFailed)
		w.look(2, "the same due time after a failure")
		w.time = w.time.AddDate(0, 1, 0)
		w.look(3, "a month in which no process ran")
		w.end(v1alpha1.OperationSucceeded)
		w.seen.LastBackup = w.time
		w.look(3, "a backup was made")
		for _, o := range w.operations() {
			if o.Spec.Kind != string(operation.SnapshotEtcd) || o.Annotations[operation.AnnotationScheduled] == "" {
				w.t.Errorf("operation %s %s with annotations %v", o.Spec.Kind, o.Name, o.Annotations)
			}
		}
	})
}

// TestSchedule_WithJumpingClock sets the clock forward and back.
func TestSchedule_WithJumpingClock(t *testing.T) {
	runInTimetables(t, func(w *timetable) {
		begun := w.time
		w.seen = health.Observation{BackupEvery: time.Hour, LastBackup: w.time}
		w.seen.RenewAfter, w.seen.RenewEvery = w.time.Add(90*24*time.Hour), 24*time.Hour
		w.time = begun.AddDate(1, 0, 0)
		w.look(2, "a year forward: one backup and one renewal")
		w.end(v1alpha1.OperationSucceeded)
		w.look(2, "the same time")
		w.time, w.seen.LastBackup = begun.Add(time.Hour), begun.AddDate(1, 0, 0)
		w.look(2, "back, and not due")
		w.time = begun.Add(3 * time.Hour)
		w.look(3, "back, and due: a backup of a wrong clock does not count")
		w.end(v1alpha1.OperationSucceeded)
		w.seen.LastBackup = w.time
		for range 5 {
			w.look(3, "a backup was made")
		}
		w.time = begun.AddDate(-1, 0, 0)
		w.look(3, "a year back")
	})
}

// TestSchedule_SkipsCluster has clusters for which nothing is requested.
func TestSchedule_SkipsCluster(t *testing.T) {
	t.Parallel()
	w := newTimetable(t, false)
	w.seen = health.Observation{BackupEvery: time.Hour, TestEvery: time.Hour, RenewAfter: w.time, RenewEvery: time.Hour}
	w.time = w.time.Add(5 * time.Hour)
	w.change(func(c *v1alpha1.Cluster) { c.Spec.Paused = true })
	w.look(0, "a paused cluster")
	w.change(func(c *v1alpha1.Cluster) { c.Spec.Paused = false })
	w.setCreated(metav1.ConditionFalse)
	w.look(0, "a cluster that was not created")
	w.setCreated(metav1.ConditionTrue)
	observe := w.is.Observe
	w.is.Observe = func(types.NamespacedName) (health.Observation, bool) { return health.Observation{}, false }
	w.look(0, "a cluster that was not probed")
	w.is.Observe = observe
	w.is.Started, w.is.Jitter = w.time, time.Hour
	if again := w.look(0, "a process that has just begun"); again > time.Minute {
		t.Errorf("the next look is in %s, want a minute at most", again)
	}
	w.time = w.time.Add(time.Hour)
	w.look(1, "after the jitter: a renewal, but the intervals of the rest have begun again")
	w.change(func(c *v1alpha1.Cluster) { c.Finalizers = []string{"slipway.dev/test"} })
	if err := w.api.Delete(t.Context(), w.cluster()); err != nil {
		t.Fatal(err)
	}
	w.end(v1alpha1.OperationSucceeded)
	w.time = w.time.AddDate(0, 1, 0)
	w.look(1, "a cluster that is being deleted")
	w.change(func(c *v1alpha1.Cluster) { c.Finalizers = nil })
}

// TestSchedule_DoesWorkOfHosts has hosts that take no snapshots, and shows the results of operations in the summary.
func TestSchedule_DoesWorkOfHosts(t *testing.T) {
	w := prepareWorld(t, "cp1")
	w.health, w.scheduleJitter = soon, time.Millisecond
	w.start()
	w.createKey()
	c := w.object("cp1")
	every := &metav1.Duration{Duration: time.Minute}
	c.Spec.Etcd.Backup = &v1alpha1.EtcdBackup{Every: every, DrillEvery: every}
	w.create(c)
	w.waitForApplied()
	w.allowBackups("cp1")
	if n := len(w.operations()); n != 1 {
		t.Errorf("%d operations after the creation, want one", n)
	}
	w.ahead.Store(int64(3 * time.Minute))
	for _, kind := range []operation.Kind{operation.SnapshotEtcd, operation.DrillEtcd} {
		if o := w.waitForState(kind, v1alpha1.OperationSucceeded); o.Annotations[operation.AnnotationScheduled] == "" {
			t.Errorf("operation %s has no due time", kind)
		}
	}
	w.eventually(func() string {
		s := w.cluster().Status.Summary
		if s == nil || s.LastBackup == nil || s.LastBackup.Host != "cp1" {
			return "the summary lacks the backup"
		}
		if s.LastRestoreTest == nil || s.LastRestoreTest.Verdict != v1alpha1.RestoreTestPassed {
			return "the summary lacks the restore test"
		}
		return ""
	})
	w.waitForCondition("BackupRecent", metav1.ConditionFalse, "BackupsNotRecent")
}
