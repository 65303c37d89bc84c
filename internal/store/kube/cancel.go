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

// WaitForCancel waits for a request to the holder of a lock, and returns it.
func (s operations) WaitForCancel(
	ctx context.Context, id string, holder records.Holder, warn func(error),
) (records.CancelRequest, error) {
	for {
		o, err := s.Load(ctx, id)
		var r records.CancelRequest
		if err == nil {
			if r, err = cancelRequestTo(o, holder); err == nil {
				return r, nil
			}
		}
		if ctx.Err() == nil && !errors.Is(err, records.ErrNotFound) && warn != nil {
			warn(err)
			warn = nil
		}
		if o != nil {
			if r, err := s.watchForCancel(ctx, o, holder); err == nil {
				return r, nil
			}
		}
		if err := waitFor(ctx, cancelInterval); err != nil {
			return records.CancelRequest{}, err
		}
	}
}

// cancelRequestTo returns the request to a holder in an operation, or records.ErrNotFound. `spec.cancelled` is a
// request to each holder.
func cancelRequestTo(o *v1alpha1.Operation, holder records.Holder) (records.CancelRequest, error) {
	if o.Spec.Cancelled {
		return records.CancelRequest{Time: time.Now().UTC(), Holder: holder}, nil
	}
	r, err := cancelRequestOf(o)
	if err == nil && !r.Holder.Equal(holder) {
		err = fmt.Errorf("request to this holder to cancel operation %s: %w", o.Name, records.ErrNotFound)
	}
	return r, err
}

// cancelWatchTime limits the watch for requests to cancel. After it, the operation is read: a connection can be
// silent without an end.
const cancelWatchTime = 20 * time.Second

// watchForCancel waits for a request to a holder that is newer than an operation. It returns records.ErrNotFound when
// the watch ends.
func (s operations) watchForCancel(ctx context.Context, o *v1alpha1.Operation, holder records.Holder) (r records.CancelRequest, err error) {
	ctx, cancel := context.WithTimeout(ctx, cancelWatchTime)
	defer cancel()
	w, err := s.own.Get().Namespace(s.Namespace).Resource(resourceOperations).
		Param("watch", "true").Param("fieldSelector", "metadata.name="+o.Name).Param("resourceVersion", o.ResourceVersion).Watch(ctx)
	if err != nil {
		return r, fmt.Errorf("watching operation %s: %w", o.Name, err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		is, ok := e.Object.(*v1alpha1.Operation)
		if !ok { // an expired version, or another error
			break
		}
		if r, err := cancelRequestTo(is, holder); err == nil {
			return r, nil
		}
	}
	return r, records.ErrNotFound
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
