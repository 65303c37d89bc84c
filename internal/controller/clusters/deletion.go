package clusters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/controller/operations"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
)

// Reasons of the condition Deleting.
const (
	reasonStopping  = "StoppingOperations"
	reasonRemoving  = "RemovingCluster"
	reasonNotReset  = "HostsNotReset"
	reasonReleasing = "Releasing"
	reasonNoRecords = "RecordsDeleted"
	reasonNamespace = "NamespaceTerminating"
)

// AnnotationForget names the failed deletion after which hosts that were not reset are given up: the name of its
// Operation.
const AnnotationForget = v1alpha1.Group + "/forget-hosts"

// reconcileDeletion carries out the deletion policy, and then removes the finalizer.
func (p *pass) reconcileDeletion(ctx context.Context) error {
	if !controllerutil.ContainsFinalizer(p.cluster, Finalizer) {
		return nil
	}
	p.state.setCondition(conditionReconciled, metav1.ConditionFalse, reasonRemoving, "the Cluster is being deleted")
	if err := errors.Join(p.withdrawPending(ctx, ""), p.endAttempts(ctx, p.latestDeletion())); err != nil {
		return err
	}
	stopping, err := p.stopOperations(ctx)
	if stopping || err != nil {
		p.state.setCondition(conditionDeleting, metav1.ConditionTrue, reasonStopping, "unfinished operations stop at a safe point")
		return err
	}
	if !p.removesHosts() {
		return p.removeFinalizer(ctx)
	}
	return p.removeFromHosts(ctx)
}

// removesHosts reports whether the cluster leaves its hosts with the object.
func (p *pass) removesHosts() bool { return p.cluster.Spec.DeletionPolicy == v1alpha1.DeletionDelete }

// annotationDeletion marks an operation that the deletion of the Cluster has requested.
const annotationDeletion = v1alpha1.Group + "/deletion"

// isDeletion reports whether an operation belongs to this deletion. A user can have requested it. An earlier one may have
// removed an earlier cluster of this object from its hosts. API servers can have different clocks.
func (p *pass) isDeletion(o *v1alpha1.Operation) bool {
	isLater := !o.CreationTimestamp.Before(p.cluster.DeletionTimestamp)
	return operation.Kind(o.Spec.Kind).RemovesCluster() && (isLater || o.Annotations[annotationDeletion] != "")
}

// latestDeletion returns the latest operation of this deletion, nil if there is none.
func (p *pass) latestDeletion() *v1alpha1.Operation {
	for i := range slices.Backward(p.operations) {
		if p.isDeletion(&p.operations[i]) {
			return &p.operations[i]
		}
	}
	return nil
}

// stopOperations withdraws operations that have not begun, and cancels the others, except operations for the deletion
// policy. It reports whether there are any.
func (p *pass) stopOperations(ctx context.Context) (stopping bool, err error) {
	for i := range p.operations {
		o := &p.operations[i]
		if operations.IsFinished(o) || p.removesHosts() && p.isDeletion(o) {
			continue
		}
		stopping = true
		if o.Spec.Cancelled {
			continue
		}
		if o.Status.StartTime == nil && !operation.HasEnded(o) && !operation.IsBeginning(o) {
			if err := p.withdraw(ctx, o, executor.ClusterDeleted); err != nil {
				return true, err
			}
			continue
		}
		was := o.DeepCopy()
		o.Spec.Cancelled = true
		if err := p.Client.Patch(ctx, o, client.MergeFrom(was)); client.IgnoreNotFound(err) != nil {
			return true, err
		}
	}
	if stopping || p.isRunStopping() {
		return true, nil
	}
	if deletion := p.latestDeletion(); deletion != nil && !operation.HasEnded(deletion) && p.removesHosts() {
		return false, nil // it can run elsewhere
	}
	return p.isRunElsewhere(ctx)
}

// elsewhereInterval is the time after which a pass looks again whether another process works on the cluster.
const elsewhereInterval = 5 * time.Second

// isRunElsewhere reports whether another process holds the lock of the cluster. Its operation can be one whose object was
// deleted.
func (p *pass) isRunElsewhere(ctx context.Context) (bool, error) {
	if uid := p.Executor.FindRunning(p.newOperation(operation.Delete, "")); uid != "" {
		return false, nil // this process has it
	}
	err := executor.CheckFree(ctx, p.records, p.cluster.Name)
	if errors.As(err, new(*executor.HeldError)) {
		p.requeueAfter(elsewhereInterval)
		return true, nil
	}
	return false, err
}

// isRunStopping reports whether a run changes the hosts that does not carry out the deletion policy. Its object can be
// deleted, or have the end of the operation already.
func (p *pass) isRunStopping() bool {
	uid := p.Executor.FindRunning(p.newOperation(operation.Delete, ""))
	deletion := slices.ContainsFunc(p.operations, func(o v1alpha1.Operation) bool {
		return o.UID == uid && p.removesHosts() && p.isDeletion(&o)
	})
	if uid == "" || deletion {
		return false
	}
	p.requeueAfter(withdrawInterval)
	return true
}

// removeFromHosts removes the cluster from its hosts with an operation. After a failure, the user decides.
func (p *pass) removeFromHosts(ctx context.Context) error {
	latest := p.latestDeletion()
	if latest != nil && !operation.HasEnded(latest) {
		p.state.setCondition(conditionDeleting, metav1.ConditionTrue, reasonRemoving,
			"operation "+latest.Name+" removes the cluster from its hosts")
		return nil
	}
	recorded, err := p.service().Saved(ctx, p.cluster.Name)
	switch {
	case err != nil:
		return err
	case latest != nil && latest.Status.State == v1alpha1.OperationSucceeded:
		return p.removeFinalizer(ctx) // no host has data of the cluster, or a user has given up the hosts
	case recorded == nil && savedstate.IsCreated(p.cluster):
		p.state.setCondition(conditionDeleting, metav1.ConditionTrue, reasonNoRecords,
			"the records of the cluster were deleted, so its hosts cannot be reset\n"+hintRetain)
		return nil
	case recorded == nil:
		return p.removeFinalizer(ctx)
	}
	isOwn, err := executor.HasControllers(ctx, p.records, p.cluster.Name, p.OwnCA)
	switch {
	case err != nil:
		return err
	case isOwn:
		p.state.setCondition(conditionDeleting, metav1.ConditionTrue, executor.OwnCluster.Reason, executor.OwnCluster.Message+"\n"+hintRetain)
		return nil
	case latest == nil:
		return p.requestDeletion(ctx, false)
	case p.cluster.Annotations[AnnotationForget] == latest.Name:
		return p.requestDeletion(ctx, true)
	}
	if err := p.repeatFailed(ctx, latest); err != nil {
		return err
	}
	p.showNotReset(latest)
	return nil
}

// hintRetain is the way out of a deletion that cannot reset the hosts.
const hintRetain = "to leave all hosts as they are, set spec.deletionPolicy to Retain"

// showNotReset shows a failed deletion, and the ways out.
func (p *pass) showNotReset(o *v1alpha1.Operation) {
	if !operation.HasEnded(o) {
		p.state.setCondition(conditionDeleting, metav1.ConditionTrue, reasonRemoving, "operation "+o.Name+" begins again")
		return
	}
	lines := []string{"operation " + o.Name + " has failed: " + o.Status.Message}
	if failed := failedHosts(o); len(failed) > 1 { // the message names one
		lines = append(lines, "failed hosts: "+strings.Join(failed, ", "))
	}
	if next := p.describeNextAttempt(o); next != "" {
		lines = append(lines, next)
	}
	again := "raise its spec.retry"
	if o.Spec.Cancelled {
		again = "create an Operation of kind " + string(operation.Delete)
	}
	lines = append(lines, "to try again, "+again)
	if o.Status.ErrorCode != v1alpha1.ErrorUserInput { // such as a Secret that does not exist
		lines = append(lines, "to give up hosts that do not respond, set the annotation "+AnnotationForget+"="+o.Name)
	}
	p.state.setCondition(conditionDeleting, metav1.ConditionTrue, reasonNotReset, strings.Join(append(lines, hintRetain), "\n"))
}

// maxFailedHosts limits the hosts in a message.
const maxFailedHosts = 20

// failedHosts returns the names of the hosts on which an operation has failed.
func failedHosts(o *v1alpha1.Operation) (names []string) {
	for _, h := range o.Status.Hosts {
		if h.State == v1alpha1.HostFailed {
			names = append(names, h.Name)
		}
	}
	slices.Sort(names)
	if more := len(names) - maxFailedHosts; more > 0 {
		names = append(names[:maxFailedHosts], fmt.Sprintf("and %d more", more))
	}
	return names
}

// requestDeletion creates an operation that removes the cluster from its hosts.
func (p *pass) requestDeletion(ctx context.Context, forget bool) error {
	o := p.newOperation(operation.Delete, "")
	o.Spec.Parameters.Forget, o.Annotations[annotationDeletion] = forget, "true"
	err := p.createOperation(ctx, o)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		p.state.setCondition(conditionDeleting, metav1.ConditionTrue, reasonNamespace,
			"the namespace is being deleted, so no operation can remove the cluster from its hosts\n"+hintRetain)
		return nil
	}
	if err != nil {
		return err
	}
	p.state.setCondition(conditionDeleting, metav1.ConditionTrue, reasonRemoving, "operation "+o.Name+" removes the cluster from its hosts")
	return nil
}

// removeFinalizer removes the records of the cluster, then the finalizer. A new Cluster with this name must not find the
// records, so the garbage collector would be too late.
func (p *pass) removeFinalizer(ctx context.Context) error {
	if err := p.records.Clusters().Remove(ctx, p.cluster.Name); err != nil {
		return err
	}
	p.state.setCondition(conditionDeleting, metav1.ConditionTrue, reasonReleasing, "")
	was := p.cluster.DeepCopy()
	controllerutil.RemoveFinalizer(p.cluster, Finalizer)
	err := p.Client.Patch(ctx, p.cluster, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	return client.IgnoreNotFound(err)
}
