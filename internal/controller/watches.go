package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/operations"
	"slipway.dev/slipway/internal/hostclaims"
)

// changedByUser selects changes of the spec and the annotations of an object.
var changedByUser = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})

// A queue has the objects at which a controller will look.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// userPriority is the priority of an object that a user has changed. Progress has 0, and what was read again without a
// change has handler.LowPriority. The queue keeps the highest priority of an object.
const userPriority = 100

// byUser requests a look at objects that users have created or changed, before all others.
func byUser() handler.EventHandler {
	look := func(o client.Object, q queue) {
		if first, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
			first.AddWithOpts(priorityqueue.AddOpts{Priority: new(userPriority)}, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			if !e.IsInInitialList {
				look(e.Object, q)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { look(e.ObjectNew, q) },
	}
}

// waitingForWindow returns the operations of a cluster that wait for a maintenance window.
func waitingForWindow(c client.Client) handler.MapFunc {
	return func(ctx context.Context, o client.Object) (out []reconcile.Request) {
		all, err := operations.ListOf(ctx, c, client.ObjectKeyFromObject(o))
		if err != nil {
			return nil // the cache has stopped
		}
		for i := range all {
			if operations.WaitsForWindow(&all[i]) {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all[i])})
			}
		}
		return out
	}
}

// claimsHandler keeps the hosts of all Clusters, and requests a look at the Clusters that share a host with a changed
// one.
func claimsHandler(claims *hostclaims.Index) handler.EventHandler {
	look := func(at []types.NamespacedName, q queue) {
		for _, name := range at {
			q.Add(reconcile.Request{NamespacedName: name})
		}
	}
	set := func(o client.Object, q queue) {
		if c, ok := o.(*v1alpha1.Cluster); ok {
			look(claims.Set(hostclaims.New(c)), q)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { set(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { set(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { look(claims.Remove(e.Object.GetUID()), q) },
	}
}
