package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"slipway.dev/slipway/internal/records"
)

// cancelInterval is the time between two looks for a request to cancel.
const cancelInterval = 200 * time.Millisecond

// RequestCancel saves a request to cancel an operation. A later request replaces it.
func (s operations) RequestCancel(_ context.Context, id string, r records.CancelRequest) error {
	if err := records.CheckName(id); err != nil {
		return fmt.Errorf("cancelling an operation: %w", err)
	}
	if err := s.writeJSON(s.operationPath(id, "cancel.json"), r); err != nil {
		return fmt.Errorf("requesting to cancel operation %s: %w", id, err)
	}
	return nil
}

// LoadCancelRequest returns the last request to cancel an operation, or ErrNotFound.
func (s operations) LoadCancelRequest(_ context.Context, id string) (records.CancelRequest, error) {
	var r records.CancelRequest
	if err := records.CheckName(id); err != nil {
		return r, fmt.Errorf("reading a request to cancel: %w", err)
	}
	if err := s.readJSON(s.operationPath(id, "cancel.json"), &r); err != nil {
		return r, fmt.Errorf("reading the request to cancel operation %s: %w", id, err)
	}
	return r, nil
}

// WaitForCancel waits for a request to the holder of a lock, and returns it. It returns the cause
// if ctx ends before. warn is called once if a request cannot be read; the next look can succeed.
func (s operations) WaitForCancel(ctx context.Context, id string, holder records.Holder, warn func(error)) (records.CancelRequest, error) {
	tick := time.NewTicker(cancelInterval)
	defer tick.Stop()
	for {
		r, err := s.LoadCancelRequest(ctx, id)
		switch {
		case err == nil && r.Holder.Equal(holder):
			return r, nil
		case err != nil && !errors.Is(err, records.ErrNotFound) && warn != nil:
			warn(err)
			warn = nil
		}
		select {
		case <-ctx.Done():
			return records.CancelRequest{}, context.Cause(ctx)
		case <-tick.C:
		}
	}
}
