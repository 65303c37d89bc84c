package controller

import (
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/node/op"
)

// TestFailure_IsNotRepeated creates a cluster with a host that does not answer.
func TestFailure_IsNotRepeated(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.Hosts["w1"].Down = lifecycletest.ErrDown
		w.createKey()
		w.create(w.object("cp1", "w1"))
		o := w.waitForState(operation.Create, v1alpha1.OperationFailed)
		if o.Status.ErrorCode != v1alpha1.ErrorUnreachable {
			w.t.Errorf("error code %q, want Unreachable", o.Status.ErrorCode)
		}
		w.waitForStalled("OperationFailed", "w1")
		w.requireQuiet(20 * time.Second)
		w.request("renew", operation.RenewCerts, nil) // the cluster does not exist yet
		w.requireReason("renew", executor.ReasonNotCreated)
		w.Hosts["w1"].Down = nil
		w.update(o, func(s *v1alpha1.OperationSpec) { s.Retry++ })
		w.waitForApplied()
		w.waitForCondition("Stalled", metav1.ConditionFalse, "")
		w.requireStates("create Succeeded", "renew-certs Failed")
	}, "cp1", "w1")
}

// TestRetry_KeepsCompletedSteps lets the join of a worker fail once.
func TestRetry_KeepsCompletedSteps(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.Hosts["w1"].Refuse = func(step string, _ op.Op) *op.Error {
			if strings.HasPrefix(step, "join.") {
				return &op.Error{Reason: "CommandFailed", Message: "no"}
			}
			return nil
		}
		w.createKey()
		w.create(w.object("cp1", "w1"))
		o := w.waitForState(operation.Create, v1alpha1.OperationFailed)
		inits, attempt, before := w.gate.count("cp1 kubeadm.config"), o.Status.Attempt, o.Status.Executor
		if before == nil || before.ID == "" || before.Lease == "" || before.FencingNumber == 0 {
			w.t.Fatalf("the executor of the first attempt is %+v", before)
		}
		w.Hosts["w1"].Refuse = nil
		w.update(o, func(s *v1alpha1.OperationSpec) { s.Retry++ })
		w.waitForApplied()
		if again := w.gate.count("cp1 kubeadm.config"); inits == 0 || again != inits {
			w.t.Errorf("%d changes by steps of init, then %d: %v", inits, again, maps.Clone(w.gate.calls))
		}
		if o = w.operation(o.Name); o.Status.Attempt <= attempt || o.Status.State != v1alpha1.OperationSucceeded {
			w.t.Errorf("attempt %d of operation that %s, before %d", o.Status.Attempt, o.Status.State, attempt)
		}
		if after := o.Status.Executor; after.Lease == before.Lease || after.FencingNumber <= before.FencingNumber {
			w.t.Errorf("the executor of the second attempt is %+v, of the first one %+v", after, before)
		}
		w.requireQuiet(quietTime)
	}, "cp1", "w1")
}

// TestDeadline_EndsHangingOperation has a host that does not answer while an operation is planned.
func TestDeadline_EndsHangingOperation(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1", "w1")
		w.Hosts["w1"].Hangs = true
		w.request("first", operation.RebootNodes, func(s *v1alpha1.OperationSpec) {
			s.Parameters.Nodes, s.Deadline = []string{"w1"}, metav1.Duration{Duration: time.Second}
		})
		w.waitForOperation("first", v1alpha1.OperationFailed, executor.ReasonDeadline)
		w.Hosts["w1"].Hangs = false
		w.request("second", operation.RebootNodes, func(s *v1alpha1.OperationSpec) { s.Parameters.Nodes = []string{"w1"} })
		w.waitForOperation("second", v1alpha1.OperationSucceeded, "")
		w.requireQuiet(quietTime)
	}, "cp1", "w1")
}

// TestDeadline_EndsHangingUpgrade has a worker that stops answering in the middle of its upgrade. The locks are released at
// the deadline, and the operation can be repeated.
func TestDeadline_EndsHangingUpgrade(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.Version = older
		w.createReady("cp1", "w1")
		w.allowBackups("cp1")
		w.stop() // the request comes before the operation for the object
		w.change(func(c *v1alpha1.Cluster) { c.Spec.Kubernetes.Version = "v1.37.1" })
		w.request("first", operation.Upgrade, func(s *v1alpha1.OperationSpec) {
			s.Parameters.Version, s.Deadline = "v1.37.1", metav1.Duration{Duration: 30 * time.Second}
		})
		wait, release := w.hold("w1 ")
		w.start()
		wait()
		w.locked(func() { w.Hosts["w1"].Hangs = true })
		release()
		o := w.waitForOperation("first", v1alpha1.OperationFailed, executor.ReasonDeadline)
		w.waitForStalled("OperationFailed", "upgrade-unfinished") // the operation for the object
		w.locked(func() {
			if is := w.Hosts["cp1"].Lock; is.Held {
				w.t.Errorf("the host lock is held after the deadline: %+v", is)
			}
			w.Hosts["w1"].Hangs = false
		})
		w.update(o, func(s *v1alpha1.OperationSpec) { s.Retry++ })
		w.waitForOperation("first", v1alpha1.OperationSucceeded, "")
		w.waitForApplied()
		w.requireQuiet(quietTime)
	}, "cp1", "w1")
}

// TestDeadline_SurvivesRestart stops the controllers before the deadline of a running operation.
func TestDeadline_SurvivesRestart(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1", "w1")
		wait, release := w.hold("w1 ")
		w.request("first", operation.RebootNodes, func(s *v1alpha1.OperationSpec) {
			s.Parameters.Nodes, s.Deadline = []string{"w1"}, metav1.Duration{Duration: 15 * time.Second}
		})
		wait()
		deadline := w.operation("first").Status.Deadline
		w.kill()
		<-time.After(time.Until(deadline.Time))
		w.start()
		o := w.waitForOperation("first", v1alpha1.OperationFailed, executor.ReasonDeadline)
		if !o.Status.Deadline.Equal(deadline) {
			w.t.Errorf("the deadline is %s, before %s", o.Status.Deadline, deadline)
		}
		release()
		w.request("second", operation.RebootNodes, func(s *v1alpha1.OperationSpec) { s.Parameters.Nodes = []string{"w1"} })
		w.waitForOperation("second", v1alpha1.OperationSucceeded, "")
		w.requireQuiet(quietTime)
	}, "cp1", "w1")
}
