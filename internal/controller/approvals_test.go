package controller

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// TestApproval_IsOfOnePlan approves another plan, then one that the hosts no longer fit, then the current one.
func TestApproval_IsOfOnePlan(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1", "w1")
		w.change(func(c *v1alpha1.Cluster) {
			c.Spec.Approval = v1alpha1.ApprovalManual
			c.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": float64(50)}
		})
		o := w.waitForState(operation.Apply, v1alpha1.OperationAwaitingApproval)
		before := w.gate.count("")
		if err := w.approve(o.DeepCopy(), "sha256:other"); !apierrors.IsInvalid(err) {
			w.t.Errorf("the approval of another plan: %v", err)
		}
		w.requireQuiet(quietTime)
		w.Hosts["w1"].EditFile("/etc/crictl.yaml", "edited")
		if err := w.approve(o, o.Status.Plan.Digest); err != nil {
			w.t.Fatal(err)
		}
		failed := w.waitForOperation(o.Name, v1alpha1.OperationFailed, executor.ReasonPlanChanged)
		if failed.Status.ErrorCode != v1alpha1.ErrorConflict || !strings.Contains(failed.Status.Message, "\n") {
			w.t.Errorf("status %+v, want the code Conflict and the difference", failed.Status)
		}
		if n := w.gate.count("") - before; n > 0 {
			w.t.Errorf("%d changes of hosts without an approval", n)
		}

		next := w.waitForState(operation.Apply, v1alpha1.OperationAwaitingApproval)
		if err := w.approve(next, next.Status.Plan.Digest); err != nil {
			w.t.Fatal(err)
		}
		w.waitForApplied()
		w.requireStates("create Succeeded", "apply Failed", "apply Succeeded")
		w.requireQuiet(quietTime)
	}, "cp1", "w1")
}

// TestApproval_OfRequest approves a plan before it is made.
func TestApproval_OfRequest(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1", "w1")
		w.request("early", operation.RebootNodes, func(s *v1alpha1.OperationSpec) { s.ApprovedPlan = "sha256:other" })
		w.waitForOperation("early", v1alpha1.OperationFailed, executor.ReasonPlanChanged)
		w.requireQuiet(quietTime)
	}, "cp1", "w1")
}

// TestApproval_IsRefused discards a plan. Another request applies the Cluster.
func TestApproval_IsRefused(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createKey()
		c := w.object("cp1")
		c.Spec.Approval = v1alpha1.ApprovalManual
		w.create(c)
		o := w.waitForState(operation.Create, v1alpha1.OperationAwaitingApproval)
		w.update(o, func(s *v1alpha1.OperationSpec) { s.Cancelled = true })
		w.waitForOperation(o.Name, v1alpha1.OperationCancelled, executor.ReasonCancelled)
		w.waitForStalled("OperationFailed", "create an Operation")
		w.requireQuiet(quietTime)
		w.request("again", operation.Create, nil)
		o = w.waitForOperation("again", v1alpha1.OperationAwaitingApproval, "")
		if err := w.approve(o, o.Status.Plan.Digest); err != nil {
			w.t.Fatal(err)
		}
		w.waitForApplied()
	}, "cp1")
}
