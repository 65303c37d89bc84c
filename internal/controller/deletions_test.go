package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/clusters"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/node/op"
)

// delete deletes the Cluster object.
func (w *world) delete() {
	w.t.Helper()
	if err := w.api.Delete(w.t.Context(), w.cluster()); err != nil {
		w.t.Fatal(err)
	}
}

// remove deletes the Cluster object with the policy Delete.
func (w *world) remove() {
	w.t.Helper()
	w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionDelete })
	w.delete()
}

// requireEmptyHosts checks that hosts have nothing of a cluster.
func (w *world) requireEmptyHosts(names ...string) {
	w.t.Helper()
	for _, name := range names {
		if left := w.Hosts[name].AllState(); len(left) > 0 {
			w.t.Errorf("host %s still has %v", name, left)
		}
	}
}

// requireNoRecords checks that no Secret with records of the cluster remains.
func (w *world) requireNoRecords() {
	w.t.Helper()
	var list corev1.SecretList
	if err := w.api.List(w.t.Context(), &list, client.InNamespace(w.namespace)); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range list.Items {
		if strings.HasPrefix(s.Name, "slipway.prod.") {
			w.t.Errorf("Secret %s remains", s.Name)
		}
	}
}

// waitForDeleting waits until the condition Deleting has a reason.
func (w *world) waitForDeleting(reason string) {
	w.t.Helper()
	w.eventually(func() string {
		is := meta.FindStatusCondition(w.cluster().Status.Conditions, "Deleting")
		if is != nil && is.Reason == reason {
			return ""
		}
		return "the condition Deleting is not " + reason
	})
}

// TestDeletion_DuringOperations deletes the Cluster during its creation, and again during its deletion.
func TestDeletion_DuringOperations(t *testing.T) {
	runInWorlds(t, func(w *world) {
		wait, release := w.hold("w1 ")
		w.createKey()
		w.create(w.object("cp1", "w1"))
		wait()
		w.remove()
		w.waitForDeleting("StoppingOperations")
		w.request("late", operation.RenewCerts, nil)
		release()
		w.waitForState(operation.Delete, v1alpha1.OperationSucceeded)
		w.waitUntilGone()
		w.requireEmptyHosts("cp1", "w1")
		w.requireNoRecords()
		for _, o := range w.operations() {
			if o.Status.State == v1alpha1.OperationSucceeded && o.Spec.Kind != string(operation.Delete) {
				w.t.Errorf("operation %s has succeeded", o.Spec.Kind)
			}
		}
		w.requireQuiet(quietTime)
	}, "cp1", "w1")
}

// TestDeletion_IsIdempotent deletes the Cluster twice, with a request of a user in between.
func TestDeletion_IsIdempotent(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1", "w1")
		wait, release := w.hold("w1 ")
		w.remove()
		wait()
		w.delete()
		w.request("late", operation.RenewCerts, nil)
		w.eventually(func() string {
			if o := w.operation("late"); o.Status.EndTime == nil {
				return "operation late has not ended"
			}
			return ""
		})
		release()
		w.waitUntilGone()
		w.requireEmptyHosts("cp1", "w1")
		w.requireNoRecords()
		w.requireQuiet(quietTime)
	}, "cp1", "w1")
}

// TestDeletion_Retains leaves the hosts as they are, also if their removal has begun to be planned.
func TestDeletion_Retains(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1", "w1")
		before := w.Hosts["w1"].AllState()
		first := w.cluster().UID
		w.delete()
		w.waitUntilGone()
		if after := w.Hosts["w1"].AllState(); len(after) != len(before) {
			w.t.Errorf("the host had %d items, now %d", len(before), len(after))
		}
		w.requireNoRecords()
		w.requireQuiet(quietTime)

		w.create(w.object("cp1", "w1"))
		w.eventually(func() string {
			for _, o := range w.operations() {
				if o.Spec.ClusterRef.UID != first && o.Status.EndTime != nil {
					return ""
				}
			}
			return "the new Cluster has no operation that ended"
		})
		if uid := w.cluster().UID; uid == first {
			w.t.Error("the new Cluster has the UID of the former one")
		}
		w.requireQuiet(quietTime)
	}, "cp1", "w1")
}

// TestDeletion_OfUnreachableHost ends in each of the three ways.
func TestDeletion_OfUnreachableHost(t *testing.T) {
	for name, end := range map[string]func(*world, *v1alpha1.Operation){
		"retry": func(w *world, o *v1alpha1.Operation) {
			w.Hosts["w1"].Down = nil
			w.update(o, func(s *v1alpha1.OperationSpec) { s.Retry++ })
			w.waitUntilGone()
			w.requireEmptyHosts("cp1", "w1")
		},
		"forget": func(w *world, o *v1alpha1.Operation) {
			w.change(func(c *v1alpha1.Cluster) { c.Annotations = map[string]string{clusters.AnnotationForget: o.Name} })
			w.waitUntilGone()
			w.requireEmptyHosts("cp1")
		},
		"retain": func(w *world, _ *v1alpha1.Operation) {
			w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionRetain })
			w.waitUntilGone()
		},
	} {
		t.Run(name, func(t *testing.T) {
			runInWorlds(t, func(w *world) {
				w.createReady("cp1", "w1")
				w.Hosts["w1"].Down = lifecycletest.ErrDown
				w.remove()
				w.waitForDeleting("HostsNotReset")
				o := w.waitForState(operation.Delete, v1alpha1.OperationFailed)
				if o.Status.ErrorCode != v1alpha1.ErrorUnreachable {
					w.t.Errorf("error code %q, want Unreachable", o.Status.ErrorCode)
				}
				w.request("late", operation.RenewCerts, nil) // it is not the deletion
				w.waitForOperation("late", v1alpha1.OperationFailed, executor.ReasonDeletion)
				w.waitForDeleting("HostsNotReset")
				w.waitForMessage("Deleting", o.Name)
				w.requireQuiet(quietTime)
				end(w, o)
				w.requireNoRecords()
				w.requireQuiet(quietTime)
			}, "cp1", "w1")
		})
	}
}

// TestDeletion_OfInvalidCluster deletes Clusters that cannot be used: one was never valid, the other one has lost
// its Secret.
func TestDeletion_OfInvalidCluster(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.create(w.object("cp1"))
		w.waitForStalled("InvalidCluster", keySecret)
		w.remove()
		w.waitUntilGone()
		w.requireStates()

		w.createReady("cp1")
		w.deleteKey()
		w.waitForStalled("InvalidCluster", keySecret)
		w.remove()
		o := w.waitForState(operation.Delete, v1alpha1.OperationFailed)
		if !strings.Contains(o.Status.Message, keySecret) {
			w.t.Errorf("message %q, want the name of the Secret", o.Status.Message)
		}
		w.waitForDeleting("HostsNotReset")
		message := meta.FindStatusCondition(w.cluster().Status.Conditions, "Deleting").Message
		if strings.Contains(message, clusters.AnnotationForget) {
			w.t.Errorf("message %q offers to give up hosts, which needs the Secret too", message)
		}
		w.createKey()
		w.update(o, func(s *v1alpha1.OperationSpec) { s.Retry++ })
		w.waitUntilGone()
		w.requireEmptyHosts("cp1")
		w.requireNoRecords()
	}, "cp1")
}

// TestDeletion_AfterRemovalByRequest deletes a Cluster that a request has removed from its hosts, and that was created
// again.
func TestDeletion_AfterRemovalByRequest(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1")
		w.request("reset", operation.Delete, nil)
		before := w.gate.count("")
		o := w.waitForOperation("reset", v1alpha1.OperationAwaitingApproval, executor.ReasonApproval) // the object is not being deleted
		w.requireQuiet(quietTime)
		if n := w.gate.count("") - before; n > 0 {
			w.t.Errorf("%d changes of hosts without an approval", n)
		}
		if err := w.approve(o, o.Status.Plan.Digest); err != nil {
			w.t.Fatal(err)
		}
		w.waitForOperation("reset", v1alpha1.OperationSucceeded, "")
		w.waitForOperations(3)
		w.waitForApplied()
		w.remove()
		w.waitUntilGone()
		w.requireEmptyHosts("cp1")
		w.requireNoRecords()
	}, "cp1")
}

// TestDeletion_OfRunningOperation deletes the object of an operation that changes hosts, then the Cluster, whose records
// must not go before the end of the run.
func TestDeletion_OfRunningOperation(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1", "w1")
		wait, release := w.hold("w1 ")
		w.request("reboot", operation.RebootNodes, func(s *v1alpha1.OperationSpec) { s.Parameters.Nodes = []string{"w1"} })
		wait()
		if err := w.api.Delete(w.t.Context(), w.operation("reboot")); err != nil {
			w.t.Fatal(err)
		}
		w.remove()
		w.waitForDeleting("StoppingOperations")
		if w.proxy != nil {
			w.proxy.Inject(nil)
		}
		<-time.After(quietTime)
		if c := w.cluster(); len(c.Finalizers) == 0 {
			w.t.Error("the finalizer was removed during a run")
		}
		release()
		w.waitUntilGone()
		w.requireNoRecords()
	}, "cp1", "w1")
}

// TestDeletion_OfProtectedCluster is refused, in each way in which a cluster can be deleted.
func TestDeletion_OfProtectedCluster(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createKey()
		c := w.object("cp1")
		c.Annotations, c.Spec.DeletionPolicy = map[string]string{v1alpha1.AnnotationProtection: "true"}, v1alpha1.DeletionDelete
		w.create(c)
		w.waitForApplied()
		remedy := "kubectl annotate cluster prod --namespace " + w.namespace + " " + v1alpha1.AnnotationProtection + "-"
		for name, remove := range map[string]func() error{
			"object": func() error { return w.api.Delete(t.Context(), w.cluster()) },
			"all": func() error {
				return w.api.DeleteAllOf(t.Context(), new(v1alpha1.Cluster), client.InNamespace(w.namespace))
			},
		} {
			if err := remove(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), remedy) {
				w.t.Errorf("%s: got %v, want %q", name, err, remedy)
			}
		}
		const refusal = "Clusters prod are protected against deletion"
		if err := w.deleteNamespace(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), refusal) {
			w.t.Errorf("the namespace: got %v", err)
		}
		w.request("reset", operation.Delete, nil)
		w.waitForOperation("reset", v1alpha1.OperationFailed, executor.ReasonProtected)
		w.requireQuiet(quietTime)
		w.change(func(c *v1alpha1.Cluster) { c.Annotations = nil })
		w.delete()
		w.waitUntilGone()
		w.requireEmptyHosts("cp1")
	}, "cp1")
}

// deleteNamespace deletes the namespace of the world.
func (w *world) deleteNamespace() error {
	return w.api.Delete(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})
}

// waitForNamespace waits until the namespace does not exist.
func (w *world) waitForNamespace() {
	w.t.Helper()
	w.eventually(func() string {
		ns := new(corev1.Namespace)
		err := w.api.Get(w.t.Context(), client.ObjectKey{Name: w.namespace}, ns)
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("the namespace still exists: %v: %+v", err, ns.Status.Conditions)
	})
}

// TestDeletion_OfNamespace is refused while it would delete what the removal of a cluster needs. The policy Retain
// needs nothing.
func TestDeletion_OfNamespace(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1")
		before := w.Hosts["cp1"].AllState()
		w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionDelete })
		if err := w.deleteNamespace(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "delete them first") {
			w.t.Errorf("with policy Delete: got %v", err)
		}
		w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionRetain })
		if err := w.deleteNamespace(); err != nil {
			w.t.Errorf("with policy Retain: %v", err)
		}
		w.waitForNamespace()
		if after := w.Hosts["cp1"].AllState(); len(after) != len(before) {
			w.t.Errorf("the host had %d items, now %d", len(before), len(after))
		}
	}, "cp1")
}

// TestDeletion_OfNamespaceThatWasAccepted deletes the namespace of a cluster that has to be removed from its hosts, as
// without admission. Records and Secrets can be gone first. The object remains until a user decides.
func TestDeletion_OfNamespaceThatWasAccepted(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1")
		w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionDelete })
		before := w.Hosts["cp1"].AllState()
		unchecked.Store(w.namespace, true)
		if err := w.deleteNamespace(); err != nil {
			w.t.Fatal(err)
		}
		w.eventually(func() string {
			is := meta.FindStatusCondition(w.cluster().Status.Conditions, "Deleting")
			if is != nil && (is.Reason == "RecordsDeleted" || is.Reason == "NamespaceTerminating") && strings.Contains(is.Message, "Retain") {
				return ""
			}
			return fmt.Sprintf("the condition Deleting is %+v", is)
		})
		w.requireQuiet(quietTime)
		w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionRetain })
		w.waitForNamespace()
		if after := w.Hosts["cp1"].AllState(); len(after) != len(before) {
			w.t.Errorf("the host had %d items, now %d", len(before), len(after))
		}
	}, "cp1")
}

// TestDeletion_NamesFailedHosts deletes a cluster with two hosts on which no step succeeds.
func TestDeletion_NamesFailedHosts(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1", "w1", "w2")
		w.locked(func() {
			for _, name := range []string{"w1", "w2"} {
				w.Hosts[name].Refuse = func(string, op.Op) *op.Error { return &op.Error{Reason: "CommandFailed", Message: "no"} }
			}
		})
		w.remove()
		w.waitForDeleting("HostsNotReset")
		w.waitForMessage("Deleting", "failed hosts: w1, w2")
		w.requireQuiet(quietTime)
		w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionRetain })
		w.waitUntilGone()
	}, "cp1", "w1", "w2")
}

// TestDeletion_AfterDeletionOfKey deletes the Secret with the SSH key first, and then leaves the hosts as they are.
func TestDeletion_AfterDeletionOfKey(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1")
		before := w.Hosts["cp1"].AllState()
		w.deleteKey()
		w.remove()
		o := w.waitForState(operation.Delete, v1alpha1.OperationFailed)
		if o.Status.ErrorCode != v1alpha1.ErrorUserInput || !strings.Contains(o.Status.Message, keySecret) {
			w.t.Errorf("error code %s, message %q, want UserInput and the name of the Secret", o.Status.ErrorCode, o.Status.Message)
		}
		w.waitForDeleting("HostsNotReset")
		w.requireQuiet(quietTime)
		w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionRetain })
		w.waitUntilGone()
		w.requireNoRecords()
		if after := w.Hosts["cp1"].AllState(); len(after) != len(before) {
			w.t.Errorf("the host had %d items, now %d", len(before), len(after))
		}
	}, "cp1")
}
