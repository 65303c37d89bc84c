package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// TestCluster_BecomesWhatItsObjectSays creates, changes and deletes a cluster through its object.
func TestCluster_BecomesWhatItsObjectSays(t *testing.T) {
	w := newProbedWorld(t, "cp1", "w1", "w2")
	w.createKey()
	w.create(w.object("cp1", "w1"))
	w.waitForCondition("Reconciled", metav1.ConditionTrue, "IntentApplied")
	w.waitForCondition("Ready", metav1.ConditionTrue, "")
	if got := w.cluster().Status; got.NodeCounts.Ready != 2 || got.Version == "" {
		t.Errorf("status %+v, want two ready nodes and a version", got)
	}

	w.change(func(c *v1alpha1.Cluster) { c.Spec.Hosts = w.object("cp1", "w1", "w2").Spec.Hosts })
	w.waitForCondition("Reconciled", metav1.ConditionTrue, "IntentApplied")
	if n := w.cluster().Status.NodeCounts.Ready; n != 3 {
		t.Errorf("%d ready nodes after a worker was added, want 3", n)
	}

	w.change(func(c *v1alpha1.Cluster) { c.Spec.Hosts = w.object("cp1", "w2").Spec.Hosts })
	w.waitForCondition("Reconciled", metav1.ConditionFalse, "ApprovalRequired")
	o := w.waitForState(operation.Apply, v1alpha1.OperationAwaitingApproval)
	if err := w.approve(o, o.Status.Plan.Digest); err != nil {
		t.Fatal(err)
	}
	w.waitForCondition("Reconciled", metav1.ConditionTrue, "IntentApplied")
	if n := w.cluster().Status.NodeCounts.Ready; n != 2 {
		t.Errorf("%d ready nodes after the approved removal, want 2", n)
	}

	w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionDelete })
	if err := w.api.Delete(t.Context(), w.cluster()); err != nil {
		t.Fatal(err)
	}
	w.waitUntilGone()
	w.waitForState(operation.Delete, v1alpha1.OperationSucceeded)
	for name, h := range w.Hosts {
		if left := h.AllState(); len(left) > 0 {
			t.Errorf("host %s still has %v", name, left)
		}
	}
}
