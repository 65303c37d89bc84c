package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// TestIntent_ChangesTwiceDuringCreate changes the Cluster twice while its creation runs.
func TestIntent_ChangesTwiceDuringCreate(t *testing.T) {
	runInWorlds(t, func(w *world) {
		wait, release := w.hold("w1 ")
		w.createKey()
		w.create(w.object("cp1", "w1"))
		wait()
		w.setHosts("cp1", "w1", "w2")
		middle := w.waitForOperations(2)[1]
		w.setHosts("cp1", "w1", "w2", "w3")
		w.waitForOperation(middle.Name, v1alpha1.OperationSuperseded, executor.ReasonNewerIntent)
		if first := w.operations()[0]; first.Status.State != v1alpha1.OperationRunning {
			w.t.Errorf("the running operation is %s", first.Status.State)
		}
		release()
		w.waitForApplied()
		if n := w.cluster().Status.NodeCounts.Ready; n != 4 {
			w.t.Errorf("%d ready nodes, want 4", n)
		}
		for _, o := range w.operations() {
			if o.Status.State != v1alpha1.OperationSucceeded && o.Status.State != v1alpha1.OperationSuperseded {
				w.t.Errorf("operation %s is %s: %s", o.Spec.Kind, o.Status.State, o.Status.Message)
			}
		}
		w.requireQuiet(quietTime)
	}, "cp1", "w1", "w2", "w3")
}

// TestIntent_ChangesBack changes a Cluster and back: before the operation begins, and after.
func TestIntent_ChangesBack(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1", "w1")
		wait, release := w.hold("w1 ")
		w.request("reboot", operation.RebootNodes, func(s *v1alpha1.OperationSpec) { s.Parameters.Nodes = []string{"w1"} })
		wait()
		w.setHosts("cp1", "w1", "w2")
		pending := w.waitForOperations(3)[2]
		w.setHosts("cp1", "w1")
		w.waitForOperation(pending.Name, v1alpha1.OperationSuperseded, executor.ReasonNewerIntent)
		w.waitForApplied()
		release()
		w.waitForOperation("reboot", v1alpha1.OperationSucceeded, "")
		w.requireStates("create Succeeded", "reboot-nodes Succeeded", "apply Superseded")

		wait, release = w.hold("w2 ")
		w.change(func(c *v1alpha1.Cluster) {
			c.Annotations = map[string]string{executor.AnnotationAllowRemoval: "w2"}
			c.Spec.Hosts = w.object("cp1", "w1", "w2").Spec.Hosts
		})
		wait()
		w.setHosts("cp1", "w1")
		w.waitForOperations(5)
		release()
		w.waitForApplied()
		w.requireStates("create Succeeded", "reboot-nodes Succeeded", "apply Superseded", "apply Succeeded", "apply Succeeded")
		if n := w.cluster().Status.NodeCounts.Total; n != 2 {
			w.t.Errorf("%d nodes, want 2", n)
		}
		w.requireQuiet(quietTime)
	}, "cp1", "w1", "w2")
}

// setKey changes the content of the Secret with the SSH key.
func (w *world) setKey(data map[string][]byte) {
	w.t.Helper()
	s := new(corev1.Secret)
	if err := w.api.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: keySecret}, s); err != nil {
		w.t.Fatal(err)
	}
	s.Data = data
	if err := w.api.Update(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) deleteKey() {
	w.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: keySecret}}
	if err := w.api.Delete(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
}

// waitForStalled waits until the condition Stalled names something.
func (w *world) waitForStalled(reason, name string) {
	w.t.Helper()
	w.waitForCondition("Stalled", metav1.ConditionTrue, reason)
	w.waitForMessage("Stalled", name)
}

// TestSecret_IsMissingEmptiedAndRotated changes nothing of the Cluster.
func TestSecret_IsMissingEmptiedAndRotated(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.create(w.object("cp1"))
		w.waitForStalled("InvalidCluster", keySecret)
		w.requireStates()
		w.createKey()
		w.waitForApplied()
		w.requireStates("create Succeeded")

		w.setKey(nil)
		w.waitForStalled("InvalidCluster", "id_ed25519")
		w.setKey(map[string][]byte{"id_ed25519": newKey(w.t)})
		w.waitForOperations(2)
		w.waitForApplied()
		w.requireStates("create Succeeded", "apply Succeeded")
		w.waitForCondition("Stalled", metav1.ConditionFalse, "")
		w.requireQuiet(quietTime)
	}, "cp1")
}

// TestRecords_AreDamagedAndRestored changes a Secret with records by hand, and restores it.
func TestRecords_AreDamagedAndRestored(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1")
		restore := w.damageRecords()
		w.poke()
		w.waitForStalled("RecordsNotUsable", "slipway.prod.spec")
		w.requireQuiet(quietTime)
		restore()
		w.poke()
		w.waitForCondition("Stalled", metav1.ConditionFalse, "")
		w.waitForApplied()

		restore = w.damageRecords()
		w.remove()
		w.waitForDeleting("RecordsNotUsable")
		w.requireQuiet(quietTime)
		restore()
		w.poke()
		w.waitUntilGone()
		w.requireEmptyHosts("cp1")
		w.requireNoRecords()
	}, "cp1")
}

// damageRecords changes the record of the applied cluster, and returns the function that restores it.
func (w *world) damageRecords() (restore func()) {
	w.t.Helper()
	secrets := server.Client(w.t).CoreV1().Secrets(w.namespace)
	is, err := secrets.Get(w.t.Context(), "slipway.prod.spec", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	good := is.DeepCopy()
	update := func(data map[string][]byte) {
		is.Data = data
		if is, err = secrets.Update(w.t.Context(), is, metav1.UpdateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	update(map[string][]byte{"content": []byte("{")})
	return func() { update(good.Data) }
}

// TestSecret_IsDeletedDuringRun lets the operation finish. The next one needs the Secret.
func TestSecret_IsDeletedDuringRun(t *testing.T) {
	runInWorlds(t, func(w *world) {
		wait, release := w.hold("w1 ")
		w.createKey()
		w.create(w.object("cp1", "w1"))
		wait()
		w.deleteKey()
		w.setHosts("cp1", "w1", "w2")
		w.waitForStalled("InvalidCluster", keySecret)
		w.request("renew", operation.RenewCerts, nil)
		release()
		w.waitForState(operation.Create, v1alpha1.OperationSucceeded)
		if o := w.waitForOperation("renew", v1alpha1.OperationFailed, ""); !strings.Contains(o.Status.Message, keySecret) {
			w.t.Errorf("message %q, want the name of the Secret", o.Status.Message)
		}
		w.createKey()
		w.waitForApplied()
		if n := w.cluster().Status.NodeCounts.Ready; n != 3 {
			w.t.Errorf("%d ready nodes, want 3", n)
		}
		w.requireQuiet(quietTime)
	}, "cp1", "w1", "w2")
}
