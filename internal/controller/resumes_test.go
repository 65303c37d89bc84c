package controller

import (
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/node/op"
)

// refuse lets steps of a host fail whose names have a prefix, "" for none.
func (w *world) refuse(host, prefix string) {
	w.locked(func() {
		w.Hosts[host].Refuse = func(step string, _ op.Op) *op.Error {
			if prefix != "" && strings.HasPrefix(step, prefix) {
				return &op.Error{Reason: "CommandFailed", Message: "no"}
			}
			return nil
		}
	})
}

// requireReason waits for the failure of an operation, and checks its reason.
func (w *world) requireReason(name, reason string) {
	w.t.Helper()
	if o := w.waitForOperation(name, v1alpha1.OperationFailed, ""); o.Status.Reason != reason {
		w.t.Errorf("%s: reason %s (%s), want %s", name, o.Status.Reason, o.Status.Message, reason)
	}
}

// TestResume_ContinuesFailedOperation resumes a create twice: it fails again, then it succeeds.
func TestResume_ContinuesFailedOperation(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.refuse("w1", "join.")
		w.createKey()
		w.create(w.object("cp1", "w1"))
		failed := w.waitForState(operation.Create, v1alpha1.OperationFailed)
		inits := w.gate.count("cp1 kubeadm.config")
		w.request("other", operation.Resume, func(s *v1alpha1.OperationSpec) { s.Parameters.Operation = "none" })
		w.requireReason("other", "operation-unfinished")
		w.request("first", operation.Resume, func(s *v1alpha1.OperationSpec) { s.Parameters.Operation = failed.Name })
		w.requireReason("first", failed.Status.Reason)
		if n := w.operation(failed.Name).Status.Attempt; n != 2 {
			w.t.Errorf("%d attempts after the first resume, want 2", n)
		}
		w.requireQuiet(quietTime)

		w.refuse("w1", "")
		w.request("second", operation.Resume, nil)
		w.waitForOperation("second", v1alpha1.OperationSucceeded, executor.ReasonResumed)
		w.waitForApplied()
		o := w.operation(failed.Name)
		if again := w.gate.count("cp1 kubeadm.config"); o.Status.State != v1alpha1.OperationSucceeded || inits == 0 || again != inits {
			w.t.Errorf("the create is %s with %d changes by steps of init, before %d", o.Status.State, again, inits)
		}
		w.request("third", operation.Resume, nil)
		w.requireReason("third", "nothing-unfinished")
		w.requireQuiet(quietTime)
	}, "cp1", "w1")
}
