package savedstate

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
)

func TestReadyNodes_CountsHostsOfTheSpec(t *testing.T) {
	rows := []v1alpha1.NodeStatus{{Name: "cp1", Ready: true}, {Name: "w1"}, {Name: "left", Ready: true}}
	for _, tc := range []struct {
		name, reason string
		status       v1alpha1.ClusterStatus
		want         int
	}{
		{"no status", "nothing was seen", v1alpha1.ClusterStatus{}, 0},
		{"without counts", "an earlier version saved it, and a host has left since", v1alpha1.ClusterStatus{Nodes: rows}, 1},
		{
			"with counts", "the rows are complete",
			v1alpha1.ClusterStatus{Nodes: rows, NodeCounts: v1alpha1.NodeCounts{Total: 3, Ready: 2}},
			1,
		},
		{
			"not all rows", "ready nodes are not listed",
			v1alpha1.ClusterStatus{Nodes: rows[1:2], NodeCounts: v1alpha1.NodeCounts{Total: 3, Ready: 2}},
			2,
		},
		{
			"not all rows, and hosts have left", "a cluster never has more ready nodes than hosts",
			v1alpha1.ClusterStatus{NodeCounts: v1alpha1.NodeCounts{Total: 300, Ready: 300}},
			2,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &v1alpha1.Cluster{Status: tc.status}
			c.Spec.Hosts = []v1alpha1.Host{{Name: "cp1"}, {Name: "w1"}}
			if got := readyNodes(c); got != tc.want {
				t.Errorf("%d ready nodes, want %d: %s", got, tc.want, tc.reason)
			}
		})
	}
}

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
		if got := beginOfCluster(tc.ops); !got.Equal(start.Add(time.Duration(tc.want) * time.Minute)) {
			t.Errorf("%s: since %s, want minute %d", tc.name, got, tc.want)
		}
	}
}
