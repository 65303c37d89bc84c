package clusters

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"slipway.dev/slipway/api/v1alpha1"
)

func TestChanges_IgnoreHealth(t *testing.T) {
	set := func(kind string) func(*v1alpha1.Cluster) {
		return func(c *v1alpha1.Cluster) {
			c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
		}
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.Cluster)
		want   bool
	}{
		"health":           {set("Ready"), false},
		"manual changes":   {set("Drifted"), false},
		"summary":          {func(c *v1alpha1.Cluster) { c.Status.Summary = new(v1alpha1.ClusterSummary) }, false},
		"version":          {func(c *v1alpha1.Cluster) { c.ResourceVersion = "2" }, false},
		"spec":             {func(c *v1alpha1.Cluster) { c.Spec.Paused = true }, true},
		"annotation":       {func(c *v1alpha1.Cluster) { c.Annotations = map[string]string{AnnotationForget: "a"} }, true},
		"deletion":         {func(c *v1alpha1.Cluster) { c.DeletionTimestamp = new(metav1.Time) }, true},
		"edited condition": {set(conditionReconciled), true},
		"creation":         {set("Created"), true},
		"applied intent":   {func(c *v1alpha1.Cluster) { c.Status.AppliedIntent = "a" }, true},
	} {
		was := new(v1alpha1.Cluster)
		was.ResourceVersion = "1"
		is := was.DeepCopy()
		tc.change(is)
		if got := Changes().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}
