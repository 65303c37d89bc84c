package operations

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/controller/maintenance"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// reasonWindow is the reason of an automatic operation that waits for a maintenance window.
const reasonWindow = "OutsideMaintenanceWindow"

// maxWindowWait is the time after which an operation that waits for a window is checked again, because clocks can be set.
const maxWindowWait = 10 * time.Minute

// WaitsForWindow reports whether an operation waits for a maintenance window. Other operations of the cluster do not
// wait for it.
func WaitsForWindow(o *v1alpha1.Operation) bool {
	return o.Status.Reason == reasonWindow && o.Status.StartTime == nil && !operation.HasEnded(o) && executor.IsAutomatic(o)
}

// waitForWindow returns how long an operation must wait for a maintenance window, 0 if it can begin. Its status
// shows the time. An operation that has begun does not stop at the end of a window.
func (r *Reconciler) waitForWindow(ctx context.Context, o *v1alpha1.Operation) (time.Duration, error) {
	if !executor.IsAutomatic(o) || o.Status.StartTime != nil {
		return 0, nil
	}
	c := new(v1alpha1.Cluster)
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ClusterRef.Name}, c)
	if err != nil {
		return 0, client.IgnoreNotFound(err) // the operation ends
	}
	windows, now := c.Spec.Maintenance.Windows, r.Now()
	next, opens := maintenance.NextOpen(windows, now)
	if opens && !next.After(now) {
		return 0, nil
	}
	wait, message := maxWindowWait, "no maintenance window of the Cluster is valid"
	if opens {
		wait, message = min(wait, next.Sub(now)), "the next maintenance window begins at "+maintenance.Describe(windows, next)
	}
	return wait, r.update(ctx, o, func(s *v1alpha1.OperationStatus) {
		s.State, s.Reason, s.Message, s.QueuePosition = v1alpha1.OperationPending, reasonWindow, message, 0
	})
}
