package executor

import (
	"context"
	"errors"
	"fmt"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/records"
)

// ErrHeld ends a run because another process works on the cluster. It is tried again later.
var ErrHeld = errors.New("another process works on the cluster")

// CheckHolder returns ErrHeld while another process holds the lock of a cluster and renews it. Without this check, each
// attempt would plan first.
func CheckHolder(ctx context.Context, backend records.Backend, cluster string) error {
	holder, err := backend.Locks().Holder(ctx, cluster)
	if err != nil || holder == nil || holder.IsOverdue {
		return err
	}
	return fmt.Errorf("%w: %s", ErrHeld, holder)
}

// checkHolder returns ErrHeld while another process holds the lock of the cluster. After the deadline too, the operation
// belongs to the process that holds the lock.
func (n *run) checkHolder() error {
	ctx, cancel := n.newSavingContext()
	defer cancel()
	return CheckHolder(ctx, n.backend, n.operation.Spec.ClusterRef.Name)
}

// A seen has the part of an operation that another process changes when it works on it.
type seen struct {
	uid     string
	attempt int32
	begun   bool
}

func seenOf(o *v1alpha1.Operation) seen {
	return seen{string(o.UID), o.Status.Attempt, o.Status.StartTime != nil}
}

// checkUnchanged returns ErrHeld if another process has begun or ended the operation since this run has loaded it. Only the
// process with the lock decides about an operation.
func (n *run) checkUnchanged(ctx context.Context) error {
	if n.holds {
		return nil
	}
	o, err := n.backend.Operations().Load(ctx, n.key.Name)
	if errors.Is(err, records.ErrNotFound) || err == nil && (operation.HasEnded(o) || seenOf(o) != n.seen) {
		return ErrHeld
	}
	return err
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
	if errors.As(err, new(*records.HeldError)) {
		return nil, fmt.Errorf("%w: %w", ErrHeld, err)
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
