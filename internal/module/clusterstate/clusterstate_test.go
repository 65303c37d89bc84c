package clusterstate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/module"
)

// TestConfigMap_LeavesOutStatus: a description from the state of the manager has a
// status, one from a file has none. Both must give the same ConfigMap; otherwise an
// unchanged cluster would have changes.
func TestConfigMap_LeavesOutStatus(t *testing.T) {
	c := &v1alpha1.Cluster{}
	c.Name = "prod"
	want, err := configMap(module.Env{Cluster: c}, "slipway")
	if err != nil {
		t.Fatal(err)
	}
	known := &v1alpha1.Cluster{ObjectMeta: c.ObjectMeta}
	known.Status = v1alpha1.ClusterStatus{Phase: v1alpha1.PhaseRunning, Operation: "20261120-181502-create-x7k2"}
	got, err := configMap(module.Env{Cluster: known}, "slipway")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if known.Status.Phase == "" {
		t.Error("the caller's cluster was changed")
	}
}
