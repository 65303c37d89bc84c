package records

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
)

// The age of a cluster counts from its first attempt. A deleted cluster with the same name
// does not count.
func TestClusterAge_CountsFromFirstAttempt(t *testing.T) {
	start := metav1.NewTime(time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC))
	op := func(kind string, minute int) v1alpha1.Operation {
		at := metav1.NewTime(start.Add(time.Duration(minute) * time.Minute))
		return v1alpha1.Operation{Spec: v1alpha1.OperationSpec{Kind: kind}, Status: v1alpha1.OperationStatus{StartTime: &at}}
	}
	never := v1alpha1.Operation{Spec: v1alpha1.OperationSpec{Kind: "create"}}
	for _, tc := range []struct {
		name string
		ops  []v1alpha1.Operation // oldest first
		want int                  // minute
	}{
		{"created", []v1alpha1.Operation{op("create", 1)}, 1},
		{"created and changed", []v1alpha1.Operation{op("create", 1), op("apply", 2)}, 1},
		{"created at the second attempt", []v1alpha1.Operation{op("create", 1), op("create", 2), op("apply", 3)}, 1},
		{"prepared before", []v1alpha1.Operation{op("init-os", 1), op("create", 2)}, 2},
		{
			"one of the same name before",
			[]v1alpha1.Operation{op("create", 1), op("apply", 2), op("delete", 3), op("create", 4), op("apply", 5)},
			4,
		},
		{"rolled back before", []v1alpha1.Operation{op("create", 1), op("rollback", 2), op("create", 3)}, 3},
		{"half deleted", []v1alpha1.Operation{op("create", 1), op("delete", 2)}, 1},
		{"an attempt that never began", []v1alpha1.Operation{never, op("create", 2)}, 2},
	} {
		slices.Reverse(tc.ops)
		if got := begun(tc.ops); !got.Equal(start.Add(time.Duration(tc.want) * time.Minute)) {
			t.Errorf("%s: since %s, want minute %d", tc.name, got, tc.want)
		}
	}
}
