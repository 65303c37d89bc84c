package controller

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/testutil/faultproxy"
)

// killAfter kills the controllers after the next write of an object, by an operation, whose path has a suffix. ended is closed
// then.
func (w *world) killAfter(suffix string) (ended <-chan struct{}) {
	w.t.Helper()
	done := make(chan struct{})
	var written atomic.Bool
	process := w.traffic
	w.proxy.Inject(func(r *http.Request) faultproxy.Fault {
		switch {
		case written.Load():
			if !process.cut.Swap(true) {
				close(done)
			}
			return faultproxy.Lost
		case r.Method == http.MethodGet || !strings.HasSuffix(r.URL.Path, suffix):
		case !strings.HasSuffix(suffix, "/status") || r.URL.Query().Get("fieldManager") == "slipway-operation":
			written.Store(true)
		}
		return faultproxy.Pass
	})
	return done
}

// requireUnsavedStart checks that the plan of an operation is saved and its start is not, and whether the saved status of the
// cluster names it.
func (w *world) requireUnsavedStart(kind operation.Kind, named bool) {
	w.t.Helper()
	store := w.openSaved()
	c, err := store.Clusters().Load(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	o := w.latest(kind)
	if !operation.IsBeginning(o) || (c.Status.Operation == o.Name) != named {
		w.t.Errorf("operation %s has the status %+v, and the cluster names %s", o.Name, o.Status, c.Status.Operation)
	}
}

// TestRestart_WhileOperationBegins kills the controllers between two writes with which an operation begins. Another process
// runs it, or another operation for the same intent.
func TestRestart_WhileOperationBegins(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.Cluster){
		"apply": func(c *v1alpha1.Cluster) { c.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": float64(50)} },
		"upgrade": func(c *v1alpha1.Cluster) {
			c.Spec.Kubernetes.Version = "v1.37.1"
		},
	} {
		for _, last := range []string{"/secrets/slipway.prod.spec", "/secrets/slipway.prod.status", "/clusters/prod/status"} {
			t.Run(name+" after "+last, func(t *testing.T) {
				t.Parallel()
				w := prepareWorld(t, "cp1")
				w.proxy = faultproxy.New(t, server.Admin)
				w.through = w.proxy.Config()
				w.Version = older
				w.start()
				w.createReady("cp1")
				w.requireQuiet(quietTime)
				w.allowBackups("cp1")
				ended := w.killAfter(last)
				w.change(change)
				<-ended
				w.requireUnsavedStart(operation.Kind(name), last != "/secrets/slipway.prod.spec")
				w.proxy.Inject(nil)
				w.start()
				w.waitForApplied()
				o := w.latest(operation.Kind(name))
				if o.Status.State != v1alpha1.OperationSucceeded {
					t.Errorf("the operation is %s (%s): %s", o.Status.State, o.Status.Reason, o.Status.Message)
				}
				for _, o := range w.operations() {
					if o.Status.State == v1alpha1.OperationFailed {
						t.Errorf("operation %s has failed: %s", o.Name, o.Status.Message)
					}
				}
				w.requireQuiet(quietTime)
			})
		}
	}
}
