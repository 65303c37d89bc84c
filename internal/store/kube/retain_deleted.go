package kube

import (
	"context"
	"slices"
	"sync"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// deletedInterval is the time between two looks at the records of deleted clusters. They have no
// operations after which Retain is called for them.
const deletedInterval = time.Hour

// A schedule has the time when the records of deleted clusters are limited again.
type schedule struct {
	mu   sync.Mutex
	next time.Time
}

// isDue reports whether it is time, and sets the next time.
func (s *schedule) isDue(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.next) {
		return false
	}
	s.next = now.Add(deletedInterval)
	return true
}

// limitDeleted limits the records of clusters that are not saved. Of all of them together, the latest
// DeletedObjects finished operations remain objects until DeletedLimits.Age. An operation that has not
// ended remains: it can be the first one of a cluster that is not saved yet.
func (r retention) limitDeleted(ctx context.Context) error {
	now := time.Now()
	if !r.deleted.isDue(now) {
		return nil
	}
	ops, err := operations(r).listObjects(ctx, "")
	if err != nil {
		return err
	}
	// The clusters are listed after the operations: a cluster is saved before its first operation begins.
	saved, err := clusters(r).List(ctx)
	if err != nil {
		return err
	}
	ops = slices.DeleteFunc(ops, func(o v1alpha1.Operation) bool {
		return !operation.HasEnded(&o) || slices.Contains(saved, o.Spec.ClusterRef.Name)
	})
	limit := r.DeletedLimits.Age
	damaged := problems{}
	for i, o := range slices.Backward(ops) {
		if i < r.DeletedObjects && (limit == 0 || now.Sub(finishedAt(&o)) <= limit) {
			continue
		}
		if err := damaged.add(r.remove(ctx, &o)); err != nil {
			return err
		}
	}
	if r.archive.exists() {
		names, err := r.archive.files.Clusters(ctx)
		if err != nil {
			return err
		}
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(saved, name) })
		if err := r.archive.files.Prune(ctx, names, r.DeletedLimits, now); err != nil {
			return err
		}
	}
	return damaged.err
}

// finishedAt returns the time from which the age of an operation counts.
func finishedAt(o *v1alpha1.Operation) time.Time {
	if end := o.Status.EndTime; end != nil {
		return end.Time
	}
	return o.CreationTimestamp.Time
}
