package executor

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/recordstest"
)

// TestSave_SuspendsStoppedOperation saves operations as cancelled, as package lifecycle does. The process can be killed
// immediately afterwards.
func TestSave_SuspendsStoppedOperation(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		stop         error
		change       func(*v1alpha1.Operation)
		isOther      bool
		want         v1alpha1.OperationState
	}{
		{"stopped", "it continues after the start", ErrStopped, nil, false, v1alpha1.OperationRunning},
		{"cancelled by a user", "the user decides", nil, nil, false, v1alpha1.OperationCancelled},
		{
			"cancelled and stopped", "the user decides", ErrStopped, func(o *v1alpha1.Operation) { o.Spec.Cancelled = true }, false,
			v1alpha1.OperationCancelled,
		},
		{
			"failed", "its end is known", ErrStopped, func(o *v1alpha1.Operation) { o.Status.State = v1alpha1.OperationFailed }, false,
			v1alpha1.OperationFailed,
		},
		{"other operation", "this run is of another one", ErrStopped, nil, true, v1alpha1.OperationCancelled},
		{"deadline", "the run saves its end", errDeadline, nil, false, v1alpha1.OperationCancelled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			backend := recordstest.NewMemory(t).Open()
			spec := v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: "apply"}
			o, err := backend.Operations().Create(t.Context(), time.Now(), spec, new(plan.Plan))
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancelCause(t.Context())
			n := &run{backend: backend, key: types.NamespacedName{Name: o.Name}, ctx: ctx}
			if tc.isOther {
				n.key.Name = "other"
			}
			opened, err := n.openRecords("")
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := opened.(records.Retainer); ok != isRetainer(backend) {
				t.Errorf("the records limit the history: %t, want %t", ok, isRetainer(backend))
			}
			if tc.stop != nil {
				stop(tc.stop)
			}
			defer stop(nil)
			o.Status.State = v1alpha1.OperationCancelled
			o.Status.StartTime = &o.CreationTimestamp
			if tc.change != nil {
				tc.change(o)
			}
			given := o.DeepCopy()
			if err := opened.Operations().Save(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			is, err := backend.Operations().Load(t.Context(), o.Name)
			if err != nil || is.Status.State != tc.want {
				t.Errorf("%s: the state is %s, %v, want %s", tc.reason, is.Status.State, err, tc.want)
			}
			if suspended := is.Status.Reason == ReasonStopped; suspended != (tc.want == v1alpha1.OperationRunning) {
				t.Errorf("the reason is %q", is.Status.Reason)
			}
			if o.Status.State != given.Status.State {
				t.Error("the object of the caller was changed")
			}
		})
	}
}

func isRetainer(b records.Backend) bool {
	_, ok := b.(records.Retainer)
	return ok
}
