package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// TestRequest_IsRefused requests operations that are not possible.
func TestRequest_IsRefused(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1", "w1")
		for _, tc := range []struct {
			name, reason string
			kind         operation.Kind
			change       func(*v1alpha1.OperationSpec)
		}{
			{"no-cluster", executor.ReasonClusterGone, operation.RenewCerts, func(s *v1alpha1.OperationSpec) { s.ClusterRef.Name = "other" }},
			{"other-uid", executor.ReasonOtherCluster, operation.RenewCerts, func(s *v1alpha1.OperationSpec) { s.ClusterRef.UID = "x" }},
			{"add-nodes", "not-requestable", operation.AddNodes, func(s *v1alpha1.OperationSpec) { s.Parameters.Nodes = []string{"w9"} }},
			{"create", "other-operation-needed", operation.Create, nil},
			{"old-intent", "", operation.Apply, func(s *v1alpha1.OperationSpec) { s.IntentDigest = "x" }},
		} {
			w.request(tc.name, tc.kind, tc.change)
			want := v1alpha1.OperationFailed
			if tc.name == "old-intent" {
				want = v1alpha1.OperationSuperseded
			}
			if o := w.waitForOperation(tc.name, want, ""); tc.reason != "" && o.Status.Reason != tc.reason {
				w.t.Errorf("%s: reason %s (%s), want %s", tc.name, o.Status.Reason, o.Status.Message, tc.reason)
			}
		}
		w.waitForApplied()
		w.requireQuiet(quietTime)
	}, "cp1", "w1")
}

// TestRequests_RunInOrder has two requests that wait for a third one.
func TestRequests_RunInOrder(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1", "w1")
		wait, release := w.hold("w1 ")
		w.request("z-first", operation.RebootNodes, func(s *v1alpha1.OperationSpec) { s.Parameters.Nodes = []string{"w1"} })
		wait()
		w.request("a-second", operation.DefragEtcd, nil)
		w.request("b-third", operation.RenewCerts, func(s *v1alpha1.OperationSpec) { s.Parameters.AllCertificates = true })
		w.eventually(func() string {
			got := []int32{
				w.operation("z-first").Status.QueuePosition, w.operation("a-second").Status.QueuePosition, w.operation("b-third").Status.QueuePosition,
			}
			return cmp.Diff([]int32{0, 1, 2}, got)
		})
		w.requireQuiet(quietTime)
		release()
		for _, name := range []string{"z-first", "a-second", "b-third"} {
			w.waitForOperation(name, v1alpha1.OperationSucceeded, "")
		}
		for _, o := range w.operations() {
			if o.Status.QueuePosition != 0 {
				w.t.Errorf("operation %s has ended at position %d of the queue", o.Name, o.Status.QueuePosition)
			}
		}
		w.requireQuiet(quietTime)
	}, "cp1", "w1")
}

// TestRequest_KeepsParameters restarts the controllers during operations whose planning determines more than the
// request has.
func TestRequest_KeepsParameters(t *testing.T) {
	for _, tc := range []struct {
		name   string
		at     string
		kind   operation.Kind
		change func(*v1alpha1.OperationSpec)
		has    func(v1alpha1.OperationParameters) bool
	}{
		{
			"reboot-nodes", "w1 ", operation.RebootNodes,
			func(s *v1alpha1.OperationSpec) { s.Parameters.Nodes = []string{"w1", "w2"} },
			func(p v1alpha1.OperationParameters) bool { return p.Boots["w1"] != "" && p.Boots["w2"] != "" },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			runInWorlds(t, func(w *world) {
				w.createReady("cp1", "w1", "w2")
				wait, release := w.hold(tc.at)
				w.request("asked", tc.kind, tc.change)
				wait()
				before := w.operation("asked").Status.Parameters
				if before == nil || !tc.has(*before) {
					w.t.Fatalf("parameters %+v", before)
				}
				w.restart(release)
				o := w.waitForOperation("asked", v1alpha1.OperationSucceeded, "")
				if d := cmp.Diff(before, o.Status.Parameters); d != "" {
					w.t.Errorf("parameters (-before +after):\n%s", d)
				}
				for name, h := range w.Hosts {
					if h.Boots > 1 {
						w.t.Errorf("host %s was rebooted %d times", name, h.Boots)
					}
				}
				w.requireQuiet(quietTime)
			}, "cp1", "w1", "w2")
		})
	}
}
