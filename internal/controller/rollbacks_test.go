package controller

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/node/op"
)

// TestResume_IsRefused resumes an operation that was cancelled.
func TestResume_IsRefused(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1", "w1", "w2")
		wait, release := w.hold("w1 ")
		w.request("reboot", operation.RebootNodes, func(s *v1alpha1.OperationSpec) { s.Parameters.Nodes = []string{"w1", "w2"} })
		wait()
		w.update(w.operation("reboot"), func(s *v1alpha1.OperationSpec) { s.Cancelled = true })
		w.waitForOperation("reboot", v1alpha1.OperationCancelling, "")
		release()
		w.waitForOperation("reboot", v1alpha1.OperationCancelled, "")
		w.request("again", operation.Resume, nil)
		w.requireReason("again", executor.ReasonNotResumed)
		w.requireQuiet(quietTime)
	}, "cp1", "w1", "w2")
}

// TestRollback_ResetsHostsOfCreate rolls a failed create back. It is not repeated.
func TestRollback_ResetsHostsOfCreate(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.refuse("w1", "join.")
		w.createKey()
		w.create(w.object("cp1", "w1"))
		w.waitForState(operation.Create, v1alpha1.OperationFailed)
		w.refuse("w1", "")
		w.request("upgrade", operation.RollbackUpgrade, nil)
		w.requireReason("upgrade", "other-operation-needed")
		w.request("back", operation.RollbackCreate, nil)
		o := w.waitForOperation("back", v1alpha1.OperationAwaitingApproval, "")
		if err := w.approve(o, o.Status.Plan.Digest); err != nil {
			w.t.Fatal(err)
		}
		w.waitForOperation("back", v1alpha1.OperationSucceeded, "")
		for name, h := range w.Hosts {
			if left := h.AllState(); len(left) > 0 {
				w.t.Errorf("host %s still has %v", name, left)
			}
		}
		w.requireQuiet(quietTime)
		w.request("again", operation.RollbackCreate, nil)
		w.requireReason("again", "nothing-unfinished")

		w.change(func(c *v1alpha1.Cluster) { c.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": float64(50)} })
		w.waitForApplied()
	}, "cp1", "w1")
}

// TestRollback_OfUpgrade rolls a failed upgrade back. It is not repeated.
func TestRollback_OfUpgrade(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.Version = older
		w.createReady("cp1", "w1")
		w.allowBackups("cp1")
		w.refuse("w1", "kubelet.running")
		w.change(func(c *v1alpha1.Cluster) { c.Spec.Kubernetes.Version = "v1.37.1" })
		failed := w.waitForState(operation.Upgrade, v1alpha1.OperationFailed)
		w.refuse("w1", "")
		w.request("create", operation.RollbackCreate, nil)
		w.requireReason("create", "other-operation-needed")
		w.request("other", operation.RollbackUpgrade, func(s *v1alpha1.OperationSpec) { s.Parameters.Operation = "create" })
		w.requireReason("other", "operation-unfinished")
		w.request("back", operation.RollbackUpgrade, func(s *v1alpha1.OperationSpec) { s.Parameters.Operation = failed.Name })
		w.waitForOperation("back", v1alpha1.OperationSucceeded, "")
		w.eventually(func() string {
			if v := w.cluster().Status.Version; v != older {
				return "the cluster has version " + v + " after the rollback"
			}
			return ""
		})
		w.requireQuiet(quietTime)
		if o := w.latest(operation.Upgrade); o.Name != failed.Name {
			w.t.Errorf("operation %s upgrades again after the rollback", o.Name)
		}
	}, "cp1", "w1")
}

// TestBadSettings_AreAppliedOnce has a setting with which a kubelet does not run. The operation rolls it back, and this
// is not taken for the wish of a user to apply the object again.
func TestBadSettings_AreAppliedOnce(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1", "w1")
		w.locked(func() {
			w.Hosts["w1"].Spoil = func(m *lifecycletest.Host, _ string, o op.Op) *op.Error {
				u, ok := o.(op.Unit)
				if !ok || u.Name != "kubelet.service" || !strings.Contains(m.Files[kubeletSettings], "maxPods: 77") {
					return nil
				}
				delete(m.State, u.Name+" started") // it does not run with these settings
				return &op.Error{Reason: op.ReasonUnhealthy, Message: "maxPods is bad"}
			}
		})
		w.change(func(c *v1alpha1.Cluster) { c.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": int64(77)} })
		w.waitForStalled("OperationFailed", "maxPods is bad")
		w.requireQuiet(quietTime)
		w.requireStates("create Succeeded", "apply Failed", "apply Succeeded")

		w.change(func(c *v1alpha1.Cluster) { c.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": int64(50)} })
		w.waitForApplied()
	}, "cp1", "w1")
}

// TestInternalOperation_IsOnlyRunByItsProcess has a part of another operation whose process was killed before the part
// began. To run it as the request of a user would apply the object.
func TestInternalOperation_IsOnlyRunByItsProcess(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1")
		before := w.gate.count("")
		w.create(&v1alpha1.Operation{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: w.namespace, Name: "part", Annotations: map[string]string{operation.AnnotationRequest: "1"},
			},
			Spec: v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: string(operation.Apply)},
		})
		w.waitForOperation("part", v1alpha1.OperationCancelled, executor.ReasonInterrupted)
		w.requireQuiet(quietTime)
		if n := w.gate.count("") - before; n > 0 {
			w.t.Errorf("%d changes of hosts", n)
		}
	}, "cp1")
}

// kubeletSettings is the file with the kubelet settings of a cluster.
const kubeletSettings = "/etc/kubernetes/kubelet.conf.d/50-slipway.conf"
