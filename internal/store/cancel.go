package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// cancelInterval is the time between two looks for a request to cancel.
const cancelInterval = 200 * time.Millisecond

// A CancelRequest asks the process that runs an operation to stop at the next safe point.
type CancelRequest struct {
	By   Holder    `json:"by"` // the process that has written the request
	Time time.Time `json:"time"`
	// Holder is the process that shall stop. Another process, which resumes the operation
	// later, does not stop.
	Holder Holder `json:"holder"`
}

// RequestCancel saves a request to cancel an operation. A later request replaces it.
func (s Operations) RequestCancel(id string, r CancelRequest) error {
	if err := checkName(id); err != nil {
		return fmt.Errorf("cancelling an operation: %w", err)
	}
	if err := s.writeJSON(s.operationPath(id, "cancel.json"), r); err != nil {
		return fmt.Errorf("requesting to cancel operation %s: %w", id, err)
	}
	return nil
}

// LoadCancelRequest returns the last request to cancel an operation, or ErrNotFound.
func (s Operations) LoadCancelRequest(id string) (CancelRequest, error) {
	var r CancelRequest
	if err := checkName(id); err != nil {
		return r, fmt.Errorf("reading a request to cancel: %w", err)
	}
	if err := s.readJSON(s.operationPath(id, "cancel.json"), &r); err != nil {
		return r, fmt.Errorf("reading the request to cancel operation %s: %w", id, err)
	}
	return r, nil
}

// WaitForCancel waits for a request to the holder of a lock, and returns it. It returns the cause
// if ctx ends before. warn is called once if a request cannot be read; the next look can succeed.
func (s Operations) WaitForCancel(ctx context.Context, id string, holder Holder, warn func(error)) (CancelRequest, error) {
	tick := time.NewTicker(cancelInterval)
	defer tick.Stop()
	for {
		r, err := s.LoadCancelRequest(id)
		switch {
		case err == nil && r.Holder.equal(holder):
			return r, nil
		case err != nil && !errors.Is(err, ErrNotFound) && warn != nil:
			warn(err)
			warn = nil
		}
		select {
		case <-ctx.Done():
			return CancelRequest{}, context.Cause(ctx)
		case <-tick.C:
		}
	}
}
