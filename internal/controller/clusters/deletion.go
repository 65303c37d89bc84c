package clusters

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// Reasons of the condition Deleting.
const (
	reasonStopping  = "StoppingOperations"
	reasonRemoving  = "RemovingCluster"
	reasonNotReset  = "HostsNotReset"
	reasonReleasing = "Releasing"
)

// AnnotationForget names the failed deletion after which hosts that were not reset are given up: the name of its
// Operation.
const AnnotationForget = v1alpha1.Group + "/forget-hosts"

// reconcileDeletion carries out the deletion policy, and then lets the object go.
func (p *pass) reconcileDeletion(ctx context.Context) error {
	if !controllerutil.ContainsFinalizer(p.cluster, Finalizer) {
		return nil
	}
	p.state.set(conditionReconciled, metav1.ConditionFalse, reasonRemoving, "the Cluster is being deleted")
	if err := p.supersede(ctx, ""); err != nil {
		return err
	}
	stopping, err := p.stopOperations(ctx)
	if stopping || err != nil {
		p.state.set(conditionDeleting, metav1.ConditionTrue, reasonStopping, "unfinished operations stop at a safe point")
		return err
	}
	if p.cluster.Spec.DeletionPolicy != v1alpha1.DeletionDelete {
		return p.release(ctx)
	}
	return p.removeFromHosts(ctx)
}

// isDeletion reports whether an operation removes the cluster from its hosts.
func isDeletion(o v1alpha1.Operation) bool { return operation.Kind(o.Spec.Kind).RemovesCluster() }

// stopOperations cancels the unfinished operations, except those of the deletion. It reports whether there are
// any.
func (p *pass) stopOperations(ctx context.Context) (stopping bool, err error) {
	for i := range p.operations {
		o := &p.operations[i]
		if operation.HasEnded(o) || isDeletion(*o) {
			continue
		}
		stopping = true
		if o.Spec.Cancelled {
			continue
		}
		was := o.DeepCopy()
		o.Spec.Cancelled = true
		if err := p.Client.Patch(ctx, o, client.MergeFrom(was)); client.IgnoreNotFound(err) != nil {
			return true, err
		}
	}
	return stopping, nil
}

// removeFromHosts removes the cluster from its hosts with an operation. After a failure, the user decides.
func (p *pass) removeFromHosts(ctx context.Context) error {
	if !slices.ContainsFunc(p.operations, isDeletion) {
		recorded, err := p.service().Saved(ctx, p.cluster.Name)
		if err != nil {
			return err
		}
		if recorded == nil {
			return p.release(ctx) // no host was changed
		}
		return p.requestDeletion(ctx, false)
	}
	latest := &p.operations[len(p.operations)-1]
	switch {
	case !operation.HasEnded(latest):
		p.state.set(conditionDeleting, metav1.ConditionTrue, reasonRemoving, "operation "+latest.Name+" removes the cluster from its hosts")
		return nil
	case latest.Status.State == v1alpha1.OperationSucceeded:
		return p.release(ctx)
	case p.cluster.Annotations[AnnotationForget] == latest.Name && !latest.Spec.Parameters.Forget:
		return p.requestDeletion(ctx, true)
	case latest.Spec.Parameters.Forget:
		if recorded, err := p.service().Saved(ctx, p.cluster.Name); recorded == nil {
			if err == nil {
				err = p.release(ctx) // hosts were given up
			}
			return err
		}
	}
	p.state.set(conditionDeleting, metav1.ConditionTrue, reasonNotReset, "operation "+latest.Name+" has failed: "+latest.Status.Message+
		"\nto try again, raise its spec.retry; to give up hosts that do not respond, set the annotation "+AnnotationForget+"="+latest.Name+
		"; to leave all hosts as they are, set spec.deletionPolicy to Retain")
	return nil
}

// requestDeletion creates an operation that removes the cluster from its hosts.
func (p *pass) requestDeletion(ctx context.Context, forget bool) error {
	o := p.newOperation(operation.Delete, "")
	o.Spec.Parameters.Forget = forget
	if err := p.create(ctx, o); err != nil {
		return err
	}
	p.state.set(conditionDeleting, metav1.ConditionTrue, reasonRemoving, "operation "+o.Name+" removes the cluster from its hosts")
	return nil
}

// release removes the finalizer. The Secrets of the cluster are removed with the object.
func (p *pass) release(ctx context.Context) error {
	p.state.set(conditionDeleting, metav1.ConditionTrue, reasonReleasing, "")
	was := p.cluster.DeepCopy()
	controllerutil.RemoveFinalizer(p.cluster, Finalizer)
	err := p.Client.Patch(ctx, p.cluster, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	return client.IgnoreNotFound(err)
}
