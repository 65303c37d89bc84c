package executor

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/service"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// AnnotationResumedBy is on an operation that a request of kind resume has continued: the UID of the latest request.
const AnnotationResumedBy = v1alpha1.Group + "/resumed-by"

// Reasons of a request of kind resume.
const (
	ReasonResuming   = "Resuming"
	ReasonResumed    = "Resumed"
	ReasonNotResumed = "NotResumable"
)

// continueAnother makes the failed operation that a request names continue, as an increase of its spec.retry does. The
// request waits in the queue until that operation has ended, and ends as it did.
func (n *run) continueAnother(object *v1alpha1.Cluster) error {
	target, err := n.findContinued()
	if err != nil {
		return err
	}
	if target == nil {
		svc := service.WithoutFiles(n.Lifecycle, n.backend, object)
		if target, err = svc.FindUnfinished(n.planning, object.Name, n.operation.Spec.Parameters.Operation); err != nil {
			return err
		}
		return n.requestRetry(target)
	}
	switch {
	case !operation.HasEnded(target), target.Spec.Retry > target.Status.ObservedRetry:
		return fmt.Errorf("operation %s has not ended yet", target.Name) // the cache of the queue is old
	case target.Status.State == v1alpha1.OperationSucceeded:
		return &End{v1alpha1.OperationSucceeded, ReasonResumed, "operation " + target.Name + " has succeeded", ""}
	}
	message := "operation " + target.Name + " has ended again: " + target.Status.Message
	return &End{v1alpha1.OperationFailed, target.Status.Reason, message, target.Status.ErrorCode}
}

// findContinued returns the operation that this request has continued, nil if it has continued none yet.
func (n *run) findContinued() (*v1alpha1.Operation, error) {
	all, err := n.backend.Operations().List(n.planning, n.operation.Spec.ClusterRef.Name)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(o v1alpha1.Operation) bool { return o.Annotations[AnnotationResumedBy] == string(n.operation.UID) })
	if at < 0 {
		return nil, nil
	}
	return &all[at], nil
}

// requestRetry makes an operation continue. It is marked in the same write, so that this happens once.
func (n *run) requestRetry(target *v1alpha1.Operation) error {
	refuse := func(message string) error {
		return &End{v1alpha1.OperationFailed, ReasonNotResumed, "operation " + target.Name + " " + message, v1alpha1.ErrorConflict}
	}
	switch kind := operation.Kind(target.Spec.Kind); {
	case target.Spec.Cancelled:
		return refuse("was cancelled and cannot continue; request another operation of kind " + target.Spec.Kind)
	case kind.RemovesCluster(): // its right is another one
		return refuse("removes the cluster from its hosts; to continue it, raise its spec.retry")
	}
	o := new(v1alpha1.Operation)
	if err := n.Client.Get(n.planning, types.NamespacedName{Namespace: n.key.Namespace, Name: target.Name}, o); err != nil {
		return err
	}
	if o.Annotations[AnnotationResumedBy] == string(n.operation.UID) { // another process has made it continue
		return n.saveWaiting("operation " + target.Name + " continues")
	}
	was := o.DeepCopy()
	o.Spec.Retry = max(o.Spec.Retry, o.Status.ObservedRetry) + 1
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[AnnotationResumedBy] = string(n.operation.UID)
	if err := n.Writer.Patch(n.planning, o, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	return n.saveWaiting("operation " + target.Name + " continues")
}

// saveWaiting saves that the request waits for the operation that it has continued.
func (n *run) saveWaiting(message string) error {
	ctx, cancel := n.newSavingContext()
	defer cancel()
	return n.update(ctx, func(now *v1alpha1.Operation) bool {
		if operation.HasEnded(now) {
			return false
		}
		now.Status.State, now.Status.Reason, now.Status.Message = v1alpha1.OperationPending, ReasonResuming, message
		return true
	})
}
