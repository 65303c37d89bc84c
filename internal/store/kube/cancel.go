package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/records"
)

// RequestCancel saves a request to cancel an operation. A later request replaces it.
func (s operations) RequestCancel(ctx context.Context, id string, r records.CancelRequest) error {
	if err := records.CheckName(id); err != nil {
		return fmt.Errorf("cancelling an operation: %w", err)
	}
	request, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("requesting to cancel operation %s: %w", id, err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotationCancel: string(request)}}})
	if err != nil {
		return fmt.Errorf("requesting to cancel operation %s: %w", id, err)
	}
	err = s.repeat(ctx, func(ctx context.Context) error {
		return s.own.Patch(types.MergePatchType).Namespace(s.Namespace).Resource(resourceOperations).Name(id).Body(patch).Do(ctx).Error()
	})
	if err != nil {
		return fmt.Errorf("requesting to cancel operation %s: %w", id, err)
	}
	return nil
}

// LoadCancelRequest returns the last request to cancel an operation, or records.ErrNotFound.
func (s operations) LoadCancelRequest(ctx context.Context, id string) (records.CancelRequest, error) {
	o, err := s.Load(ctx, id)
	if err != nil {
		return records.CancelRequest{}, fmt.Errorf("reading a request to cancel: %w", err)
	}
	return cancelRequestOf(o)
}

// cancelRequestOf returns the last request in an operation, or records.ErrNotFound.
func cancelRequestOf(o *v1alpha1.Operation) (r records.CancelRequest, err error) {
	text, ok := o.Annotations[annotationCancel]
	if !ok {
		return r, fmt.Errorf("request to cancel operation %s: %w", o.Name, records.ErrNotFound)
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, damagedError(fmt.Sprintf("annotation %s of Operation %s", annotationCancel, o.Name), err)
	}
	return r, nil
}

// cancelInterval is the time between two looks for a request to cancel while a watch is not
// possible.
const cancelInterval = 500 * time.Millisecond

// WaitForCancel waits for a request to the holder of a lock, and returns it. `spec.cancelled` is a
// request to each holder.
func (s operations) WaitForCancel(
	ctx context.Context, id string, holder records.Holder, warn func(error),
) (records.CancelRequest, error) {
	for {
		o, err := s.Load(ctx, id)
		var r records.CancelRequest
		if err == nil {
			if o.Spec.Cancelled {
				return records.CancelRequest{By: records.Holder{}, Time: time.Now().UTC(), Holder: holder}, nil
			}
			if r, err = cancelRequestOf(o); err == nil && r.Holder.Equal(holder) {
				return r, nil
			}
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, records.ErrNotFound) && warn != nil {
			warn(err)
			warn = nil
		}
		if o != nil {
			s.awaitChange(ctx, resourceOperations, "metadata.name="+id, o.ResourceVersion)
		}
		if err := waitFor(ctx, cancelInterval); err != nil {
			return records.CancelRequest{}, err
		}
	}
}

// watchTime limits a watch. Its end is not an error. After it, the objects are read: a connection can
// be silent without an end.
const watchTime = 2 * time.Second

// awaitChange returns after a change of the selected objects since a version, or when the watch
// ends for any reason.
func (c *connection) awaitChange(ctx context.Context, resource, fields, since string) {
	ctx, cancel := context.WithTimeout(ctx, watchTime)
	defer cancel()
	w, err := c.own.Get().Namespace(c.Namespace).Resource(resource).
		Param("watch", "true").Param("fieldSelector", fields).Param("resourceVersion", since).Watch(ctx)
	if err != nil {
		return // the caller reads the objects again
	}
	defer w.Stop()
	select {
	case <-w.ResultChan():
	case <-ctx.Done():
	}
}

// waitFor waits, and returns the cause if ctx ends before.
func waitFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
