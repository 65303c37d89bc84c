package executor

import (
	"context"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/intent"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// AnnotationRepair marks an operation that repairs hosts which differ from what was last applied: the digest of the
// applied intent. Such an operation never removes a host or data, whatever is approved.
const AnnotationRepair = v1alpha1.Group + "/repair"

// ReasonRepairRefused ends a repair that is not safe without a user.
const ReasonRepairRefused = "RepairRefused"

// IsRepair reports whether an operation is an automatic repair.
func IsRepair(o *v1alpha1.Operation) bool { return o.Annotations[AnnotationRepair] != "" }

// IsAutomatic reports whether no user has asked for the next attempt of an operation: only such operations wait for a
// maintenance window.
func IsAutomatic(o *v1alpha1.Operation) bool {
	return (IsRepair(o) || o.Annotations[operation.AnnotationScheduled] != "") && o.Spec.ApprovedPlan == "" && o.Spec.Retry == 0
}

// FindUnhealthy returns the reason why the control planes of a cluster are not all healthy, "" if they are.
func FindUnhealthy(ctx context.Context, svc *lifecycle.Service, name string) string {
	api, err := svc.QueryAPI(ctx, name)
	if err != nil || !api.Answers {
		if api, err = svc.QueryAPIThroughHosts(ctx, name); err != nil {
			return err.Error()
		}
	}
	hosts, err := svc.QueryHealth(ctx, name)
	if err != nil {
		return err.Error()
	}
	return inspect.FindProblem(api, hosts)
}

// withdrawRepair ends a repair if the Cluster has changed since it was requested.
func (n *run) withdrawRepair(object *v1alpha1.Cluster, wants *intent.Intent) error {
	if n.operation.Status.StartTime != nil || !IsRepair(n.operation) {
		return nil
	}
	if n.operation.Annotations[AnnotationRepair] != wants.Digest || object.Spec.Paused || object.Spec.DriftPolicy != v1alpha1.DriftRepair {
		return &End{v1alpha1.OperationSuperseded, ReasonNewerIntent, "the Cluster has changed since the repair was requested", ""}
	}
	return nil
}

// refuseRepair ends a repair whose plan removes something, or whose control planes are not healthy.
func (n *run) refuseRepair(ctx context.Context, svc *lifecycle.Service, p lifecycle.Prepared) error {
	if n.operation.Status.StartTime != nil || !IsRepair(n.operation) {
		return nil
	}
	var why string
	switch {
	case len(p.Leaving()) > 0:
		why = "hosts leave the cluster: " + strings.Join(p.Leaving(), ", ")
	case len(p.Plan().Removes) > 0:
		why = "data would be lost: " + strings.Join(p.Plan().Removes, "; ")
	default:
		why = FindUnhealthy(ctx, svc, n.operation.Spec.ClusterRef.Name)
	}
	if why == "" {
		return nil
	}
	return &End{v1alpha1.OperationFailed, ReasonRepairRefused, "the repair is refused: " + why, v1alpha1.ErrorConflict}
}
