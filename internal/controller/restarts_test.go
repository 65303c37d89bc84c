package controller

import (
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/testutil/faultproxy"
)

// restart stops the controllers in an orderly way and starts them again. release lets held changes continue.
func (w *world) restart(release func()) {
	w.t.Helper()
	stopped := make(chan struct{})
	go func() { // ends with the controllers
		defer close(stopped)
		w.stop()
	}()
	<-time.After(time.Second)
	release()
	<-stopped
	w.start()
}

// TestRestart_ContinuesOperation stops the controllers in the middle of a create.
func TestRestart_ContinuesOperation(t *testing.T) {
	for name, stop := range map[string]func(*world, func()){
		"orderly": (*world).restart,
		"killed": func(w *world, release func()) {
			w.kill()
			w.start()
			<-time.After(time.Second)
			release() // a paused process comes back
		},
	} {
		t.Run(name, func(t *testing.T) {
			runInWorlds(t, func(w *world) {
				wait, release := w.hold("w1 join.")
				w.createKey()
				w.create(w.object("cp1", "w1"))
				wait()
				inits := w.gate.count("cp1 kubeadm.config")
				stop(w, release)
				w.waitForApplied()
				o := w.latest(operation.Create)
				if o.Status.Attempt < 2 || o.Status.State != v1alpha1.OperationSucceeded {
					w.t.Errorf("attempt %d of operation that %s", o.Status.Attempt, o.Status.State)
				}
				if again := w.gate.count("cp1 kubeadm.config"); inits == 0 || again != inits {
					w.t.Errorf("%d changes by steps of init, then %d", inits, again)
				}
				w.requireStates("create Succeeded")
				w.requireQuiet(quietTime)
			}, "cp1", "w1")
		})
	}
}

// TestRestart_DuringPlanning stops the controllers before an operation begins.
func TestRestart_DuringPlanning(t *testing.T) {
	runInWorlds(t, func(w *world) {
		wait, release := w.hold("cp1 lock")
		w.createKey()
		w.create(w.object("cp1"))
		wait()
		w.restart(release)
		w.waitForApplied()
		w.requireStates("create Succeeded")
		w.requireQuiet(quietTime)
	}, "cp1")
}

// TestStatus_IsEditedByHand removes and changes what the controllers show.
func TestStatus_IsEditedByHand(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1")
		for _, change := range []func(*v1alpha1.ClusterStatus){
			func(s *v1alpha1.ClusterStatus) { *s = v1alpha1.ClusterStatus{} },
			func(s *v1alpha1.ClusterStatus) { s.AppliedIntent = "x" },
			func(s *v1alpha1.ClusterStatus) {
				s.Conditions = []metav1.Condition{{
					Type: "Reconciled", Status: metav1.ConditionFalse, Reason: "X", LastTransitionTime: metav1.Now(),
				}}
			},
		} {
			w.eventually(func() string {
				c := w.cluster()
				change(&c.Status)
				if err := w.api.Status().Update(w.t.Context(), c); err != nil {
					return err.Error()
				}
				return ""
			})
			w.waitForApplied()
		}
		w.requireStates("create Succeeded")
		w.requireQuiet(quietTime)
	}, "cp1")
}

// TestWrites_ConflictForAWhile refuses all changes of objects for some seconds, several times.
func TestWrites_ConflictForAWhile(t *testing.T) {
	t.Parallel()
	w := prepareWorld(t, "cp1", "w1")
	w.proxy = faultproxy.New(t, server.Admin)
	w.through = w.proxy.Config()
	start := time.Now()
	w.proxy.Inject(func(r *http.Request) faultproxy.Fault {
		if time.Since(start)%(6*time.Second) < 2*time.Second && r.Method != http.MethodGet {
			return faultproxy.Conflict
		}
		return faultproxy.Pass
	})
	w.start()
	w.createReady("cp1", "w1")
	w.setHosts("cp1")
	o := w.waitForState(operation.Apply, v1alpha1.OperationAwaitingApproval)
	if err := w.approve(o, o.Status.Plan.Digest); err != nil {
		t.Fatal(err)
	}
	w.waitForApplied()
	if w.proxy.Hits(faultproxy.Conflict) == 0 {
		t.Error("no write was refused")
	}
	w.requireQuiet(quietTime)
}
