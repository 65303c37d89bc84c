package clusters

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
)

// Changes accepts the changes of Clusters that this controller depends on. The health and the manual changes in a status
// do not matter to it: each pass reads the files of the cluster.
func Changes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1alpha1.Cluster)
		is, same := e.ObjectNew.(*v1alpha1.Cluster)
		return !ok || !same || !equality.Semantic.DeepEqual(ownPart(was), ownPart(is))
	}}
}

// ownPart returns a copy of a Cluster without the parts of its status that other controllers write.
func ownPart(c *v1alpha1.Cluster) *v1alpha1.Cluster {
	out := c.DeepCopy()
	out.ResourceVersion, out.ManagedFields, out.Status.Summary = "", nil, nil
	out.Status.Conditions = slices.DeleteFunc(out.Status.Conditions, func(is metav1.Condition) bool {
		return !slices.Contains([]string{
			conditionDeleting, conditionPaused, conditionReconciled, conditionStalled, savedstate.ConditionCreated,
		}, is.Type)
	})
	return out
}
