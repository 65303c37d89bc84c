// Package operations has the controller of Operations: it decides which operation runs next on each cluster.
package operations

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/status"
)

// ClusterField is the index of Operations by the name of their cluster.
const ClusterField = "spec.clusterRef.name"

// DefaultDeadline is the time limit of an attempt of an operation without spec.deadline.
const DefaultDeadline = 4 * time.Hour

// A Reconciler runs each operation when it is the first one of its cluster.
type Reconciler struct {
	// Client reads from the cache, and Live from the API.
	Client   client.Client
	Live     client.Reader
	Executor *executor.Pool
	// Owns reports whether a cluster belongs to this process.
	Owns func(cluster types.NamespacedName) bool
	Now  func() time.Time
}

// Reconcile decides what an operation does next.
func (r *Reconciler) Reconcile(ctx context.Context, key reconcile.Request) (reconcile.Result, error) {
	o := new(v1alpha1.Operation)
	err := r.Client.Get(ctx, key.NamespacedName, o)
	if client.IgnoreNotFound(err) != nil || err == nil && IsFinished(o) {
		return reconcile.Result{}, err
	}
	if err == nil && !r.Owns(types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ClusterRef.Name}) {
		r.Executor.Leave(o)
		return reconcile.Result{}, nil
	}
	if err == nil {
		if wait := r.Executor.HeldTime(o); wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, r.showCancelling(ctx, o)
		}
	}
	// The cache can be older than the end of the latest run.
	if err := r.Live.Get(ctx, key.NamespacedName, o); err != nil {
		if apierrors.IsNotFound(err) {
			r.Executor.StopDeleted(key.NamespacedName, "")
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	r.Executor.StopDeleted(key.NamespacedName, o.UID)
	if IsFinished(o) {
		return reconcile.Result{}, nil
	}
	if r.Executor.FindRunning(o) == o.UID {
		return reconcile.Result{}, r.cancelRunning(ctx, o)
	}
	if o.Spec.Cancelled && o.Status.StartTime == nil && !operation.IsBeginning(o) {
		return reconcile.Result{}, r.update(ctx, o, func(s *v1alpha1.OperationStatus) { executor.Cancelled.SetStatus(s, r.Now()) })
	}
	earlier, err := r.earlier(ctx, o)
	if err != nil {
		return reconcile.Result{}, err
	}
	if earlier > 0 {
		return reconcile.Result{}, r.update(ctx, o, func(s *v1alpha1.OperationStatus) {
			r.reopen(o, s)
			s.QueuePosition = int32(min(earlier, 1<<20))
			s.Reason, s.Message = reasonQueued, describeEarlier(earlier)
		})
	}
	if operation.IsInternal(o) && o.Status.StartTime == nil && !operation.IsBeginning(o) {
		return reconcile.Result{}, r.update(ctx, o, func(s *v1alpha1.OperationStatus) {
			executor.Interrupted.SetStatus(s, r.Now())
			s.ObservedRetry = o.Spec.Retry
		})
	}
	return r.runFirst(ctx, o)
}

// describeEarlier describes how many operations come first.
func describeEarlier(n int) string {
	if n == 1 {
		return "another operation of the cluster comes first"
	}
	return fmt.Sprintf("%d operations of the cluster come first", n)
}

// IsFinished reports whether there is nothing to do: the operation has ended, and no user has asked for a retry.
func IsFinished(o *v1alpha1.Operation) bool { return operation.HasEnded(o) && !isRetried(o) }

// isRetried reports whether a user has asked for another attempt of an operation that failed or was cancelled.
func isRetried(o *v1alpha1.Operation) bool {
	failed := o.Status.State == v1alpha1.OperationFailed || o.Status.State == v1alpha1.OperationCancelled
	return failed && o.Spec.Retry > o.Status.ObservedRetry && !o.Spec.Cancelled
}

// cancelRunning passes a request to cancel an operation to its planning. A running operation sees it itself.
func (r *Reconciler) cancelRunning(ctx context.Context, o *v1alpha1.Operation) error {
	switch {
	case !o.Spec.Cancelled:
		return nil
	case o.Status.StartTime == nil:
		_, err := r.Executor.Withdraw(o, executor.Cancelled, func() error { return nil }) // otherwise its end comes back here
		return err
	}
	return r.showCancelling(ctx, o)
}

// showCancelling shows that a running operation has a request to stop. Its process sees the request itself.
func (r *Reconciler) showCancelling(ctx context.Context, o *v1alpha1.Operation) error {
	if !o.Spec.Cancelled || o.Status.State != v1alpha1.OperationRunning {
		return nil
	}
	return r.update(ctx, o, func(s *v1alpha1.OperationStatus) {
		s.State, s.Message = v1alpha1.OperationCancelling, "the operation stops at the next safe point"
	})
}

// earlier returns the number of unfinished operations of the cluster that come first: begun operations, then
// the others, in the order of their creation.
func (r *Reconciler) earlier(ctx context.Context, o *v1alpha1.Operation) (n int, err error) {
	list, err := ListOf(ctx, r.Client, types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ClusterRef.Name})
	if err != nil {
		return 0, err
	}
	for i := range list {
		other := &list[i]
		if other.UID != o.UID && !IsFinished(other) && !WaitsForWindow(other) && compareTurns(other, o) < 0 {
			n++
		}
	}
	if running := r.Executor.FindRunning(o); running != "" && n == 0 {
		n = 1 // one that the operation itself has begun, such as the rollback of settings
	}
	return n, nil
}

// ListOf returns the Operations of a cluster, oldest first.
func ListOf(ctx context.Context, c client.Reader, cluster types.NamespacedName) ([]v1alpha1.Operation, error) {
	var list v1alpha1.OperationList
	err := c.List(ctx, &list, client.InNamespace(cluster.Namespace), client.MatchingFields{ClusterField: cluster.Name})
	slices.SortFunc(list.Items, func(a, b v1alpha1.Operation) int { return Compare(&a, &b) })
	return list.Items, err
}

// Compare compares operations by their creation, then by their names.
func Compare(a, b *v1alpha1.Operation) int {
	return cmp.Or(operation.CreationTime(a).Compare(operation.CreationTime(b)), cmp.Compare(a.Name, b.Name))
}

// compareTurns compares unfinished operations by the order in which they run. The creation times have whole seconds, so
// the name can put an operation before one that has begun.
func compareTurns(a, b *v1alpha1.Operation) int {
	waits := func(o *v1alpha1.Operation) int {
		if o.Status.StartTime != nil {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(waits(a), waits(b)), Compare(a, b))
}

// runFirst runs the first operation of a cluster, unless it waits for an approval or a maintenance window.
func (r *Reconciler) runFirst(ctx context.Context, o *v1alpha1.Operation) (reconcile.Result, error) {
	if o.Status.State == v1alpha1.OperationAwaitingApproval && o.Spec.ApprovedPlan == "" {
		return reconcile.Result{}, nil
	}
	if wait, err := r.waitForWindow(ctx, o); wait > 0 || err != nil {
		return reconcile.Result{RequeueAfter: wait}, err
	}
	if wait := r.Executor.RemainingDelay(o); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, r.showError(ctx, o)
	}
	if err := r.update(ctx, o, func(s *v1alpha1.OperationStatus) { r.begin(o, s) }); err != nil {
		return reconcile.Result{}, err
	}
	r.Executor.Start(o)
	if r.Executor.FindRunning(o) == "" { // another operation took the last slot, or the run has ended
		return reconcile.Result{RequeueAfter: r.Executor.RemainingDelay(o)}, nil
	}
	return reconcile.Result{}, nil
}

// reasonRepeated is the reason of an operation whose latest run ended with an error that can end.
const reasonRepeated = "RunRepeated"

// showError shows the error of the latest run. The next run shows its progress instead.
func (r *Reconciler) showError(ctx context.Context, o *v1alpha1.Operation) error {
	failed := r.Executor.LastError(o)
	if failed == nil {
		return nil
	}
	return r.update(ctx, o, func(s *v1alpha1.OperationStatus) {
		s.Reason = reasonRepeated
		s.Message = status.LimitMessage("the operation is repeated after an error: "+failed.Error(), v1alpha1.MaxStatusMessage)
	})
}

// begin changes the status before an attempt. A restart of the management plane does not change the deadline.
func (r *Reconciler) begin(o *v1alpha1.Operation, s *v1alpha1.OperationStatus) {
	r.reopen(o, s)
	s.QueuePosition, s.ObservedRetry, s.ObservedGeneration = 0, o.Spec.Retry, o.Generation
	if s.Reason == reasonQueued || s.Reason == reasonWindow {
		s.Reason, s.Message = "", ""
	}
	if s.State == v1alpha1.OperationAwaitingApproval { // it was approved
		s.State, s.Reason, s.Message, s.Deadline = v1alpha1.OperationPlanning, "", "", nil
	}
	if s.Deadline == nil {
		at := metav1.NewTime(r.Now().Add(cmp.Or(o.Spec.Deadline.Duration, DefaultDeadline)))
		s.Deadline = &at
	}
}

// reasonQueued is the reason of an operation that waits for others.
const reasonQueued = "Queued"

// reopen makes an operation that a user retries unfinished again.
func (r *Reconciler) reopen(o *v1alpha1.Operation, s *v1alpha1.OperationStatus) {
	if !isRetried(o) {
		s.State = cmp.Or(s.State, v1alpha1.OperationPending)
		return
	}
	Reopen(s)
	s.ObservedRetry, s.AutomaticRetry = o.Spec.Retry, nil
}

// Reopen makes an operation that has ended unfinished again.
func Reopen(s *v1alpha1.OperationStatus) {
	s.State, s.Reason, s.Message, s.ErrorCode, s.EndTime, s.Deadline = v1alpha1.OperationPending, "", "", "", nil, nil
	if s.StartTime != nil {
		s.State = v1alpha1.OperationRunning
	}
}

// update changes the status of an operation if that makes a difference.
func (r *Reconciler) update(ctx context.Context, o *v1alpha1.Operation, change func(*v1alpha1.OperationStatus)) error {
	was := o.DeepCopy()
	change(&o.Status)
	if equality.Semantic.DeepEqual(&was.Status, &o.Status) {
		return nil
	}
	return client.IgnoreNotFound(r.Client.Status().Patch(ctx, o, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})))
}
