package executor

import (
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// AnnotationAllowRemoval names hosts that may leave the cluster without an approval: "w1,w2".
const AnnotationAllowRemoval = v1alpha1.Group + "/allow-removal"

// needsApproval returns why a plan needs an approval, "" if it can be applied.
func (n *run) needsApproval(p lifecycle.Prepared, object *v1alpha1.Cluster) string {
	o := n.operation
	if o.Status.StartTime != nil || o.Spec.ApprovedPlan != "" || p.Plan().IsEmpty() {
		return ""
	}
	const hint = "; to approve the plan, set spec.approvedPlan to the value of status.plan.digest"
	allowed := strings.Split(object.Annotations[AnnotationAllowRemoval], ",")
	unexpected := slices.DeleteFunc(slices.Clone(p.Leaving()), func(host string) bool { return slices.Contains(allowed, host) })
	switch kind := operation.Kind(o.Spec.Kind); {
	case kind.RemovesCluster() && object.DeletionTimestamp != nil && object.Spec.DeletionPolicy == v1alpha1.DeletionDelete:
		return "" // the deletion of the object was the decision
	case kind.RemovesCluster():
		return "all hosts of the cluster would be reset, although the Cluster is not being deleted" + hint
	case object.Spec.Approval == v1alpha1.ApprovalManual:
		return "spec.approval of the Cluster is Manual" + hint
	case len(unexpected) > 0:
		return "hosts leave the cluster: " + strings.Join(unexpected, ", ") + hint
	case len(p.Plan().Removes) > len(p.Leaving()): // each leaving host is one of them
		return "data would be lost: " + strings.Join(p.Plan().Removes, "; ") + hint
	}
	return ""
}
