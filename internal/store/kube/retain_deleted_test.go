package kube_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/store/kube"
	"slipway.dev/slipway/internal/store/kube/archive"
)

// TestRetain_LimitsRecordsOfDeletedClusters limits the records of cluster prod, which is not saved, after
// operations of cluster live. Each store is a new process.
func TestRetain_LimitsRecordsOfDeletedClusters(t *testing.T) {
	c, _, _ := newArchived(t)
	h := newHistory(t, c, manyOperations)
	waiting := beginOperation(t, h.store) // a cluster that is not saved yet
	live := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "live"}}
	requireNoError(t, h.store.Clusters().Save(t.Context(), live, nil))
	spec := v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "live"}, Kind: "create"}
	own, err := h.store.Operations().Create(t.Context(), time.Now(), spec, new(plan.Plan))
	requireNoError(t, err)
	end := metav1.NewTime(time.Now().AddDate(-1, 0, 0).Truncate(time.Second))
	own.Status.State, own.Status.StartTime, own.Status.EndTime = v1alpha1.OperationSucceeded, &end, &end
	requireNoError(t, h.store.Operations().Save(t.Context(), own))

	retain := func(change func(*kube.Config)) (objects, all int) {
		t.Helper()
		c := h.Config
		change(&c)
		s := openStore(t, c)
		requireNoError(t, s.Retain(t.Context(), "live"))
		ops, err := s.Operations().List(t.Context(), "prod")
		requireNoError(t, err)
		return len(h.objects(t)) - 1, len(ops) - 1 // without the one that waits
	}
	if objects, all := retain(func(*kube.Config) {}); objects != len(h.ids) || all != len(h.ids) {
		t.Errorf("%d objects and %d operations, want all: no limit is exceeded", objects, all)
	}
	if objects, all := retain(func(c *kube.Config) { c.DeletedObjects = 2 }); objects != 2 || all != len(h.ids) {
		t.Errorf("%d objects and %d operations, want 2 objects, and all operations in the archive", objects, all)
	}
	for _, id := range h.ids[:3] {
		if got := eventsOf(t, h.store, id); len(got) != len(h.events[id]) {
			t.Errorf("operation %s has %d events, want %d", id, len(got), len(h.events[id]))
		}
	}
	if objects, all := retain(func(c *kube.Config) {
		c.DeletedObjects, c.DeletedLimits = 2, archive.Limits{Operations: 5}
	}); objects != 2 || all != 2+5 {
		t.Errorf("%d objects and %d operations, want 2 objects and 5 in the archive", objects, all)
	}
	if objects, all := retain(func(c *kube.Config) { c.DeletedLimits = archive.Limits{Age: time.Nanosecond} }); objects != 0 || all != 0 {
		t.Errorf("%d objects and %d operations, want none: all are too old", objects, all)
	}
	for _, id := range []string{waiting.Name, own.Name} {
		if _, err := h.store.Operations().Load(t.Context(), id); err != nil {
			t.Errorf("an operation that has not ended, or is of a saved cluster: %v", err)
		}
	}
	files, err := h.Archive.List(t.Context(), "")
	requireNoError(t, err)
	if len(files) != 0 {
		t.Errorf("%d files remain in the archive: %v", len(files), files)
	}
}
