package savedstate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/records"
)

// cancelInterval is the time between two looks at the process that was asked to stop.
const cancelInterval = 200 * time.Millisecond

// A CancelledError is the cause of a context that ends because a user has requested to cancel the
// operation.
type CancelledError struct {
	By records.Holder // the process with which the user has requested it
}

func (e *CancelledError) Error() string {
	return fmt.Sprintf("%s has requested to cancel the operation", e.By)
}

// Cancel requests that the process which runs the cluster's operation stops at the next safe
// point, and returns when it has stopped or ctx is done. The process can run on another machine
// that shares the state. progress, which may be nil, receives an event after the request.
func (r *View) Cancel(ctx context.Context, name string, progress event.Sink) error {
	tick := time.NewTicker(cancelInterval)
	defer tick.Stop()
	var asked *records.Holder
	for {
		now, err := r.Records.Locks().Holder(ctx, name)
		switch {
		case err != nil:
			return err
		case asked == nil && now == nil:
			return diag.Refuse(idNothingRunning, "no operation is running on cluster "+name, "list its operations: slipway operations list "+name)
		case now == nil || asked != nil && !now.IsSameProcess(*asked) && now.PID != 0:
			return nil
		case now.Operation != "" && (asked == nil || now.Operation != asked.Operation): // otherwise it has not begun
			if err := r.saveRequest(ctx, now, records.ThisProcess()); err != nil {
				return err
			}
			asked = now
			event.SendNote(progress, "", "stopping the operation on cluster "+name)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// saveRequest saves the request of a process that a holder stops, also after the end of ctx.
func (r *View) saveRequest(ctx context.Context, holder *records.Holder, by records.Holder) error {
	return r.Records.Operations().RequestCancel(context.WithoutCancel(ctx), holder.Operation, records.CancelRequest{
		By: by, Time: time.Now().UTC(), Holder: *holder,
	})
}

// WatchCancel returns a context that ends when a user requests to cancel an operation. Its cause
// is a *CancelledError then. If parent ends before, this process saves the same request: the
// records then name the process that has cancelled the operation. stop ends the watch.
func (r *View) WatchCancel(parent context.Context, id string, holder records.Holder) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	ended := make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		request, err := r.Records.Operations().WaitForCancel(ctx, id, holder, func(err error) {
			r.WarnOf(diag.List{{ID: idCancelUnreadable, Message: err.Error(), Hint: "to stop the operation, press Ctrl-C in its terminal"}})
		})
		var outer *CancelledError
		switch {
		case err == nil:
			cancel(&CancelledError{By: request.By})
		case errors.As(context.Cause(parent), &outer):
			_ = r.saveRequest(ctx, &holder, outer.By) // the operation stops without it
		case parent.Err() != nil:
			_ = r.saveRequest(ctx, &holder, records.ThisProcess())
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
	}
}
