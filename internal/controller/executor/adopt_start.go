package executor

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/records"
)

// AdoptStart saves the start of an operation whose process ended before it saved the start. The saved status of the cluster
// names the operation then. The caller has checked that no process holds the lock of the cluster. Another process can have
// changed the operation: the error is a HeldError.
func AdoptStart(ctx context.Context, backend records.Backend, o *v1alpha1.Operation, now time.Time) error {
	if o.Status.StartTime != nil || o.Status.Plan == nil {
		return nil
	}
	recorded, err := backend.Clusters().Load(ctx, o.Spec.ClusterRef.Name)
	if errors.Is(err, records.ErrNotFound) || err == nil && recorded.Status.Operation != o.Name {
		return nil
	}
	if err != nil {
		return err
	}
	start, was := metav1.NewTime(now), seenOf(o)
	if err := updateStatus(ctx, backend.Operations(), o.Name, func(now *v1alpha1.Operation) (bool, error) {
		if seenOf(now) != was {
			return false, errOther
		}
		now.Status.StartTime = &start
		return true, nil
	}); err != nil {
		return err
	}
	o.Status.StartTime = &start
	return nil
}
