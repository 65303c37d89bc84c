package operation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
)

// parseOperations returns operations from words such as "apply:failed", newest first. "-" after
// the state means that the operation never began, and "?" that it never had a plan either. "#" at the end means that it is
// for an intent, and "@" that it was due.
func parseOperations(t *testing.T, words string) (ops []v1alpha1.Operation) {
	t.Helper()
	states := map[string]v1alpha1.OperationState{
		"ok": v1alpha1.OperationSucceeded, "failed": v1alpha1.OperationFailed, "cancelled": v1alpha1.OperationCancelled,
		"running": v1alpha1.OperationRunning, "pending": v1alpha1.OperationPending, "superseded": v1alpha1.OperationSuperseded,
	}
	for i, word := range strings.Fields(words) {
		word, isIntent := strings.CutSuffix(word, "#")
		word, isDue := strings.CutSuffix(word, "@")
		kind, state, _ := strings.Cut(word, ":")
		state, unbegun := strings.CutSuffix(state, "-")
		o := v1alpha1.Operation{}
		state, requested := strings.CutSuffix(state, "?")
		unbegun = unbegun || requested
		o.Name, o.Spec.Kind, o.Status.State = fmt.Sprint("op", i), kind, states[state]
		if isIntent {
			o.Spec.IntentDigest = "sha256:2"
		}
		if isDue {
			o.Annotations = map[string]string{AnnotationScheduled: "2026-11-30T12:00:00Z"}
		}
		if !requested {
			o.Status.Plan = &v1alpha1.PlanStatus{Digest: "sha256:1"}
		}
		if !unbegun && o.Status.State != v1alpha1.OperationPending {
			o.Status.StartTime = &metav1.Time{}
		}
		if Kind(kind) == RotateCA {
			o.Spec.Parameters.Rotates = map[string]string{"etcd": "id"}
		}
		if o.Status.State == "" {
			t.Fatalf("unknown state in %q", word)
		}
		ops = append(ops, o)
	}
	return ops
}

// TestNeedsOf_KeepsWhatLaterOperationsRead has n for nothing, r for the record and j for the journal.
func TestNeedsOf_KeepsWhatLaterOperationsRead(t *testing.T) {
	for _, tc := range []struct{ name, ops, want, reason string }{
		{"none", "", "", "there is nothing to keep"},
		{"creation", "create:ok", "r", "a rollback of the next change returns to its plan"},
		{"failed creation", "create:failed", "j", "it can be resumed"},
		{"creation that never began", "create:failed-", "r", "it is the latest creation"},
		{"running", "apply:running create:ok", "j r", "it runs"},
		{"waiting", "apply:pending apply:ok apply:pending create:ok", "j r j r", "the queue is not history"},
		{"changes", "apply:ok add-nodes:ok apply:ok create:ok", "r n n r", "only the latest success counts"},
		{"failed change", "apply:failed apply:ok apply:failed create:ok", "j r n r", "the success finished the earlier one"},
		{"several attempts", "apply:failed apply:cancelled add-nodes:failed create:ok", "j j j r", "together they are one attempt"},
		{"interrupted", "apply:ok apply:running create:ok", "r n r", "the later success shows that its process has ended"},
		{"superseded", "apply:superseded apply:failed- create:ok", "j n r", "it began; the other one changed nothing"},
		{"maintenance", "etcd-defrag:ok renew-certs:ok reboot-nodes:ok create:ok", "r n n r", "it finished and changed no description"},
		{"failed maintenance", "etcd-defrag:failed etcd-defrag:failed create:ok", "j n r", "it is run again, and never resumed"},
		{"failed renewal", "etcd-defrag:ok renew-certs:failed apply:ok create:ok", "r j r r", "it can be resumed"},
		{"failed renewal before a change", "apply:ok renew-certs:failed create:ok", "r n r", "no resume returns to it"},
		{
			"maintenance during a change", "reboot-nodes:ok apply:failed reboot-nodes:ok create:ok", "j j n r",
			"it may have returned a node to service that the change had stopped",
		},
		{
			"forgotten hosts", "forget-nodes:ok apply:failed forget-nodes:ok create:ok", "j j r r",
			"the plan of the creation still has these hosts",
		},
		{"forgotten hosts before a change", "apply:ok forget-nodes:ok create:ok", "r n r", "the plan of the change has them no more"},
		{"upgrade", "apply:ok upgrade:ok upgrade:ok create:ok", "r j n r", "a rollback of the next minor reads the latest one"},
		{"failed upgrade", "upgrade:failed apply:ok upgrade:ok create:ok", "j r n r", "it is the latest one that began"},
		{"upgrade that never began", "upgrade:failed- upgrade:ok create:ok", "n j r", "the one before it is the latest"},
		{"rollback", "rollback-upgrade:ok upgrade:failed create:ok", "r j r", "the upgrade remains the latest one"},
		{"rotation", "apply:ok rotate-ca:failed create:ok", "r j r", "only another rotation finishes it"},
		{"repeated rotation", "rotate-ca:ok rotate-ca:failed create:ok", "r j r", "a resume still offers the earlier one"},
		{
			"repeated rotation before others", "etcd-defrag:ok rotate-ca:ok rotate-ca:failed create:ok", "r r j r",
			"without the success, the earlier one would count as unfinished",
		},
		{
			"rotation before a change", "apply:ok rotate-ca:ok rotate-ca:failed create:ok", "r r n r",
			"without the success, the failure counts again",
		},
		{"restore", "apply:ok etcd-restore:ok create:ok", "r r r", "the next restore needs their number"},
		{"failed restore", "apply:ok etcd-restore:failed create:ok", "r j r", "members may have different data"},
		{"repeated restore", "etcd-rescue:ok etcd-restore:failed create:ok", "r j r", "a resume still offers the earlier one"},
		{"restores before a change", "apply:ok etcd-rescue:ok etcd-restore:failed create:ok", "r r r r", "all members have the new data"},
		{"restore that never began", "apply:ok etcd-restore:failed- create:ok", "r n r", "it replaced no data"},
		{"restore of an earlier cluster", "create:ok delete:ok etcd-restore:failed create:ok", "r n n n", "its data is gone"},
		{"removal", "delete:ok apply:failed create:ok", "r n r", "nothing is left to resume"},
		{"failed removal", "delete:failed apply:ok create:ok", "j r r", "it can be resumed"},
		{"preparation", "init-os:failed init-os:failed", "j n", "without a cluster the latest one can be resumed"},
		{"requested creation", "create:failed? apply:ok create:ok", "n r r", "it had no plan, and the one before it is the latest"},
		{"nothing to do", "apply:ok? apply:ok create:ok", "n r r", "it changed nothing"},
		{"failed intent", "etcd-snapshot:ok apply:failed?# apply:failed?# create:ok#", "r r n r", "it would be requested again"},
		{"withdrawn intent", "apply:superseded-# apply:failed?# create:ok", "n r r", "the other one was the latest decision"},
		{"waiting intent", "apply:pending# apply:failed?# create:ok", "j r r", "the waiting one can be withdrawn"},
		{
			"due operation", "etcd-snapshot:ok renew-certs:failed?@ renew-certs:failed?@ create:ok", "r r n r",
			"it would be requested again",
		},
		{"unknown", "apply:ok frobnicate:ok create:ok", "r j r", "a later version can read it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, n := range NeedsOf(parseOperations(t, tc.ops)) {
				got = append(got, string("nrj"[n]))
			}
			if d := cmp.Diff(tc.want, strings.Join(got, " ")); d != "" {
				t.Errorf("needs of %q (-want +got):\n%s%s", tc.ops, d, tc.reason)
			}
		})
	}
}

// TestNeedsOf_NeverGrows adds each possible operation to lists, and requires that no need becomes larger.
func TestNeedsOf_NeverGrows(t *testing.T) {
	const list = "etcd-restore:failed upgrade:failed reboot-nodes:ok rotate-ca:failed forget-nodes:ok apply:failed etcd-rescue:ok " +
		"apply:pending apply:failed?# renew-certs:cancelled renew-certs:failed?@ create:ok# delete:ok etcd-restore:failed create:failed"
	ops := parseOperations(t, list)
	for from := range ops {
		before := NeedsOf(ops[from:])
		for _, kind := range Kinds() {
			for _, state := range []string{"ok", "failed", "failed-", "running", "pending", "ok#", "failed?#", "pending#", "ok@"} {
				added := parseOperations(t, string(kind)+":"+state)
				for i, n := range NeedsOf(append(added, ops[from:]...))[1:] {
					if n > before[i] {
						t.Errorf("%s:%s raises the need of %s from %d to %d", kind, state, ops[from+i].Spec.Kind, before[i], n)
					}
				}
			}
		}
	}
}
