package controller

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// repeating returns a Cluster object whose failed operations are repeated.
func (w *world) repeating(attempts int32, backoff time.Duration, hosts ...string) *v1alpha1.Cluster {
	c := w.object(hosts...)
	c.Spec.RetryPolicy = &v1alpha1.RetryPolicy{Attempts: attempts, Backoff: &metav1.Duration{Duration: backoff}}
	return c
}

// waitForNextAttempt waits until an operation of a kind has a time for its next automatic attempt.
func (w *world) waitForNextAttempt(kind operation.Kind) *v1alpha1.Operation {
	w.t.Helper()
	var o *v1alpha1.Operation
	w.eventually(func() string {
		isKind := func(o v1alpha1.Operation) bool { return o.Spec.Kind == string(kind) }
		if !slices.ContainsFunc(w.operations(), isKind) {
			return "there is no operation of kind " + string(kind)
		}
		if o = w.latest(kind); o.Status.AutomaticRetry == nil || o.Status.AutomaticRetry.NextTime == nil {
			return "operation " + o.Name + " has no next attempt"
		}
		return ""
	})
	return o
}

// TestRetryPolicy_LimitsAttempts has a host that answers only after all automatic attempts.
func TestRetryPolicy_LimitsAttempts(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.Hosts["w1"].Down = lifecycletest.ErrDown
		w.createKey()
		w.create(w.repeating(2, 3*time.Second, "cp1", "w1"))
		o := w.waitForNextAttempt(operation.Create)
		if at := o.Status.AutomaticRetry.NextTime; at.Sub(o.Status.EndTime.Time) < 3*time.Second-time.Second {
			w.t.Errorf("the attempt at %s follows the end at %s too early", at, o.Status.EndTime)
		}
		w.waitForCondition("Reconciled", metav1.ConditionFalse, "OperationRepeated")
		w.waitForCondition("Stalled", metav1.ConditionFalse, "")
		w.eventually(func() string {
			if o = w.operation(o.Name); o.Status.State != v1alpha1.OperationFailed || o.Status.AutomaticRetry.Attempts != 2 {
				return "the operation has not used its attempts"
			}
			return ""
		})
		w.waitForStalled("OperationFailed", "w1")
		w.requireQuiet(20 * time.Second)
		if o = w.operation(o.Name); o.Status.AutomaticRetry.NextTime != nil || o.Status.AutomaticRetry.Attempts != 2 {
			w.t.Errorf("after all attempts: %+v", o.Status.AutomaticRetry)
		}
		w.Hosts["w1"].Down = nil
		w.update(o, func(s *v1alpha1.OperationSpec) { s.Retry++ })
		w.waitForApplied()
		if o = w.operation(o.Name); o.Status.AutomaticRetry != nil {
			w.t.Errorf("after the request of a user: %+v", o.Status.AutomaticRetry)
		}
		w.requireStates("create Succeeded")
	}, "cp1", "w1")
}

// TestRetryPolicy_RepeatsUntilSuccess has a host that answers before the automatic attempt of its removal from the
// cluster, too.
func TestRetryPolicy_RepeatsUntilSuccess(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.Hosts["w1"].Down = lifecycletest.ErrDown
		w.createKey()
		w.create(w.repeating(5, 5*time.Second, "cp1", "w1"))
		w.waitForNextAttempt(operation.Create)
		w.locked(func() { w.Hosts["w1"].Down = nil })
		w.waitForApplied()
		w.requireStates("create Succeeded")
		w.locked(func() { w.Hosts["w1"].Down = lifecycletest.ErrDown })
		w.remove()
		w.waitForNextAttempt(operation.Delete)
		w.locked(func() { w.Hosts["w1"].Down = nil })
		w.waitUntilGone()
		w.requireEmptyHosts("cp1", "w1")
	}, "cp1", "w1")
}

// TestRetryPolicy_IsEndedByUser cancels an operation before its automatic attempt, pauses another one, and changes the
// Cluster.
func TestRetryPolicy_IsEndedByUser(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.Hosts["w1"].Down = lifecycletest.ErrDown
		w.createKey()
		w.create(w.repeating(5, 10*time.Minute, "cp1", "w1"))
		o := w.waitForNextAttempt(operation.Create)
		w.update(o, func(s *v1alpha1.OperationSpec) { s.Cancelled = true })
		o = w.waitForOperation(o.Name, v1alpha1.OperationCancelled, "Cancelled")
		if o.Status.AutomaticRetry.NextTime != nil {
			w.t.Errorf("after the cancel: %+v", o.Status.AutomaticRetry)
		}
		w.requireQuiet(quietTime)

		w.change(func(c *v1alpha1.Cluster) { c.Spec.Hosts[1].Labels = map[string]string{"a": "b"} })
		w.waitForOperations(2)
		next := w.waitForNextAttempt(operation.Create)
		if next.Name == o.Name {
			w.t.Fatal("the cancelled operation is repeated")
		}
		w.change(func(c *v1alpha1.Cluster) { c.Spec.Paused = true })
		w.eventually(func() string {
			if w.operation(next.Name).Status.AutomaticRetry.NextTime != nil {
				return "a paused cluster has a next attempt"
			}
			return ""
		})
		w.Hosts["w1"].Down = nil
		w.change(func(c *v1alpha1.Cluster) { c.Spec.Paused, c.Spec.Hosts[1].Labels = false, map[string]string{"a": "c"} })
		w.waitForApplied()
		if o = w.operation(next.Name); o.Status.State != v1alpha1.OperationFailed || o.Status.AutomaticRetry.NextTime != nil {
			w.t.Errorf("the operation for the former intent is %s: %+v", o.Status.State, o.Status.AutomaticRetry)
		}
		w.requireQuiet(quietTime)
	}, "cp1", "w1")
}

// windowIn returns a maintenance window that opens in some hours, for an hour.
func (w *world) windowIn(hours int) []v1alpha1.MaintenanceWindow {
	start := w.now().UTC().Truncate(time.Minute).Add(time.Duration(hours) * time.Hour)
	return []v1alpha1.MaintenanceWindow{{Start: start.Format("15:04"), Duration: &metav1.Duration{Duration: time.Hour}}}
}

// poke changes an annotation of the Cluster, because the real clock has not moved.
func (w *world) poke() {
	w.t.Helper()
	w.change(func(c *v1alpha1.Cluster) { c.Annotations = map[string]string{"example.com/at": w.now().String()} })
}

// TestRetryPolicy_WaitsForWindow moves the clock to the next maintenance window.
func TestRetryPolicy_WaitsForWindow(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.Hosts["w1"].Down = lifecycletest.ErrDown
		w.createKey()
		c := w.repeating(1, time.Second, "cp1", "w1")
		c.Spec.Maintenance.Windows = w.windowIn(5)
		w.create(c) // a change of a user waits for no window
		o := w.waitForNextAttempt(operation.Create)
		if at := o.Status.AutomaticRetry.NextTime.UTC().Format("15:04"); at != c.Spec.Maintenance.Windows[0].Start {
			w.t.Errorf("the next attempt begins at %s, want the start of the window at %s", at, c.Spec.Maintenance.Windows[0].Start)
		}
		w.waitForCondition("Reconciled", metav1.ConditionFalse, "OperationRepeated")
		w.waitForMessage("Reconciled", "automatic attempt 1 of 1 begins at ")
		w.requireQuiet(quietTime)
		w.Hosts["w1"].Down = nil
		w.ahead.Store(int64(5*time.Hour + time.Minute))
		w.poke()
		w.waitForApplied()
		w.requireStates("create Succeeded")
	}, "cp1", "w1")
}
