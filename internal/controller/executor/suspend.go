package executor

import (
	"context"
	"errors"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/records"
)

// suspend makes an operation that was stopped continue later. One that has not begun is planned again.
func suspend(s *v1alpha1.OperationStatus) {
	if s.State = v1alpha1.OperationRunning; s.StartTime == nil {
		s.State = v1alpha1.OperationPlanning
	}
	s.EndTime, s.ErrorCode = nil, ""
	s.Reason, s.Message = ReasonStopped, "the management plane has stopped: the operation continues after its start"
}

// markSuspended marks an operation that continues after the next start of the management plane. Without the lock, this run
// has changed nothing.
func (n *run) markSuspended() error {
	if !n.holds {
		return nil
	}
	ctx, cancel := n.newSavingContext()
	defer cancel()
	return n.update(ctx, func(now *v1alpha1.Operation) bool {
		if now.Status.State == v1alpha1.OperationSucceeded || now.Status.StartTime == nil && !operation.HasEnded(now) {
			return false
		}
		suspend(&now.Status)
		return true
	})
}

// openRecords returns the records for package lifecycle. It saves a stopped operation as cancelled, and the process can
// be killed before markSuspended corrects that. So these records never save it as cancelled. And they do not give the
// lock to an operation that another process has begun or ended.
func (n *run) openRecords(string) (records.Backend, error) {
	out := suspendingRecords{n.backend, n}
	if retainer, ok := n.backend.(records.Retainer); ok {
		return retainingRecords{out, retainer}, nil
	}
	return out, nil
}

// suspendingRecords are records in which a stop of the management plane suspends the operation of a run.
type suspendingRecords struct {
	records.Backend
	run *run
}

// retainingRecords are suspendingRecords that limit the history.
type retainingRecords struct {
	suspendingRecords
	records.Retainer
}

// Locks implements records.Backend.
func (s suspendingRecords) Locks() records.Locks { return ownLocks{s.Backend.Locks(), s.run} }

// Operations implements records.Backend.
func (s suspendingRecords) Operations() records.Operations {
	return suspendingOperations{s.Backend.Operations(), s.run}
}

type suspendingOperations struct {
	records.Operations
	run *run
}

// Save implements records.Operations.
func (s suspendingOperations) Save(ctx context.Context, o *v1alpha1.Operation) error {
	stopped := errors.Is(context.Cause(s.run.ctx), ErrStopped)
	if stopped && o.Name == s.run.key.Name && o.Status.State == v1alpha1.OperationCancelled && !o.Spec.Cancelled {
		o = o.DeepCopy()
		suspend(&o.Status)
	}
	return s.Operations.Save(ctx, o)
}
