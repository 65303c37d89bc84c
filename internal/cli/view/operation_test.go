package view

import (
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	kinds "slipway.dev/slipway/internal/lifecycle/operation"
)

// TestNextOperationCommand_FitsKindAndState: the next command in an operation's report
// works for that operation.
func TestNextOperationCommand_FitsKindAndState(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		kind         kinds.Kind
		state        v1alpha1.OperationState
		want         string
	}{
		{"failed", "it goes on", kinds.Create, v1alpha1.OperationFailed, "slipway resume prod"},
		{
			"hosts without a cluster", "resume would continue another operation of a saved cluster", kinds.InitOS,
			v1alpha1.OperationCancelled, "slipway init os -f FILE",
		},
		{"under way", "it can be watched", kinds.InitOS, v1alpha1.OperationRunning, "slipway operations watch op-1"},
		{"done", "there is nothing to do", kinds.Apply, v1alpha1.OperationSucceeded, ""},
	} {
		o := &v1alpha1.Operation{}
		o.Name, o.Spec.ClusterRef.Name, o.Spec.Kind, o.Status.State = "op-1", "prod", string(tc.kind), tc.state
		if got := nextOperationCommand(o); got != tc.want {
			t.Errorf("%s: next is %q, want %q: %s", tc.name, got, tc.want, tc.reason)
		}
	}
}
