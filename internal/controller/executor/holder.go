package executor

import (
	"context"
	"errors"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/records"
)

// A HeldError ends a run because another process works on the cluster. It is tried again later.
type HeldError struct {
	// Holder describes the other process.
	Holder string
	// Wait is the time until the lock can be free, 0 if it is not known.
	Wait time.Duration
}

func (e *HeldError) Error() string { return "another process works on the cluster: " + e.Holder }

// isHeld reports whether another process works on the cluster.
func isHeld(err error) bool { return errors.As(err, new(*HeldError)) }

// CheckHolder returns a HeldError while another process holds the lock of a cluster and renews it. Without this check, each
// attempt would plan first.
func CheckHolder(ctx context.Context, backend records.Backend, cluster string) error {
	holder, err := backend.Locks().Holder(ctx, cluster)
	if err != nil || holder == nil || holder.IsOverdue {
		return err
	}
	return &HeldError{Holder: holder.String(), Wait: time.Until(holder.Expires)}
}

// CheckFree returns a HeldError while the lock of a cluster can be held, also by a process that was killed.
func CheckFree(ctx context.Context, backend records.Backend, cluster string) error {
	holder, err := backend.Locks().Holder(ctx, cluster)
	if err != nil || holder == nil {
		return err
	}
	return &HeldError{Holder: holder.String()}
}

// checkHolder returns a HeldError while another process holds the lock of the cluster. After the deadline too, the operation
// belongs to the process that holds the lock.
func (n *run) checkHolder() error {
	ctx, cancel := n.newSavingContext()
	defer cancel()
	return CheckHolder(ctx, n.backend, n.operation.Spec.ClusterRef.Name)
}

// A seen has the part of an operation that another process changes when it works on it.
type seen struct {
	uid      string
	attempt  int32
	begun    bool
	approved string
}

func seenOf(o *v1alpha1.Operation) seen {
	return seen{string(o.UID), o.Status.Attempt, o.Status.StartTime != nil, o.Spec.ApprovedPlan}
}

// errOther is the reason of a run that ends because another process has changed its operation.
var errOther = &HeldError{Holder: "it has changed the operation"}

// compare returns a HeldError if another process has begun or ended the operation since this run has loaded it. Only the
// process with the lock decides about an operation. It can lose the lock, and another one begins the next attempt then.
func (n *run) compare(now *v1alpha1.Operation) error {
	is := seenOf(now)
	switch {
	case n.holds && is.uid == n.seen.uid && is.attempt <= n.seen.attempt+1:
		return nil
	case n.holds, operation.HasEnded(now), is != n.seen:
		return errOther
	}
	return nil
}

// update changes the status of the operation, unless another process has changed it. change reports whether there is
// something to save. An operation that does not exist is not saved.
func (n *run) update(ctx context.Context, change func(now *v1alpha1.Operation) bool) error {
	return updateStatus(ctx, n.backend.Operations(), n.key.Name, func(now *v1alpha1.Operation) (bool, error) {
		if err := n.compare(now); err != nil {
			return false, err
		}
		return change(now), nil
	})
}

// updateStatus changes the status of an operation if it exists. change reports whether there is something to save.
func updateStatus(
	ctx context.Context, operations records.Operations, name string, change func(now *v1alpha1.Operation) (bool, error),
) error {
	unchanged := errors.New("nothing to save")
	err := operations.Update(ctx, name, func(now *v1alpha1.Operation) error {
		saves, err := change(now)
		if err == nil && !saves {
			err = unchanged
		}
		return err
	})
	if errors.Is(err, unchanged) || errors.Is(err, records.ErrNotFound) {
		return nil
	}
	return err
}

// checkUnchanged is compare with the saved operation. An operation that was deleted has changed too.
func (n *run) checkUnchanged(ctx context.Context) error {
	now, err := n.backend.Operations().Load(ctx, n.key.Name)
	if errors.Is(err, records.ErrNotFound) {
		return errOther
	}
	if err != nil {
		return err
	}
	return n.compare(now)
}

// ownLocks are the locks of clusters for a run.
type ownLocks struct {
	records.Locks
	run *run
}

// Acquire implements records.Locks. Two processes can plan the same operation, and one of them gets the lock first. The
// other one must not run it again.
func (l ownLocks) Acquire(ctx context.Context, cluster string, who records.Holder) (records.Lock, error) {
	lock, err := l.Locks.Acquire(ctx, cluster, who)
	if held := (*records.HeldError)(nil); errors.As(err, &held) {
		return nil, &HeldError{Holder: held.Holder.String()}
	}
	if err != nil {
		return nil, err
	}
	if err := l.run.checkUnchanged(ctx); err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	l.run.holds = true
	return lock, nil
}
