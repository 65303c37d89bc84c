package records

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/process"
	"slipway.dev/slipway/internal/store"
)

// terminate asks the process that a lock names to stop. It returns os.ErrProcessDone if
// the process has ended. The lock file belongs to the user, so only a process of this
// program gets the signal.
func terminate(h *store.Holder) error {
	p, err := process.Find(h.PID)
	if errors.Is(err, fs.ErrNotExist) {
		return os.ErrProcessDone
	}
	if err == nil {
		p.Start = cmp.Or(h.Start, p.Start)
		err = p.StopSame()
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, process.ErrOtherProgram) {
		return fmt.Errorf("stopping %s: %w", h, err)
	}
	return err
}

// notSlipway is the error for a held lock that names a process which does not hold it.
func notSlipway(name string, h *store.Holder) error {
	return diag.Refuse(idNotSlipway, fmt.Sprintf("the lock of cluster %s names process %d, which is not a process of Slipway", name, h.PID),
		"find the process that holds the lock file with 'fuser', and stop it")
}

// Cancel asks the process that runs the cluster's operation to stop cleanly, and returns
// when it has ended or ctx is done. progress, which may be nil, receives an event when the
// process has been asked.
func (r *Records) Cancel(ctx context.Context, name string, progress event.Sink) error {
	holder, err := r.Store.Locks().Holder(name)
	if err != nil {
		return err
	}
	if holder == nil {
		return diag.Refuse(idNothingRunning, "no operation is running on cluster "+name, "list its operations: slipway operations list "+name)
	}
	here, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("finding this machine's name: %w", err)
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	asked := 0 // the process that was asked to stop
	ended := 0 // the process that the lock named and that had ended
	for {
		now, err := r.Store.Locks().Holder(name)
		if err != nil || now == nil || asked != 0 && now.PID != asked {
			return err
		}
		if now.Host != "" && now.Host != here {
			return diag.Refuse(idRunsElsewhere,
				"operation "+now.Operation+" of cluster "+name+" is running on another machine: "+now.String(), "stop the operation on that machine")
		}
		if now.PID > 0 && asked == 0 { // the holder may not have written its PID yet
			switch err := terminate(now); {
			case errors.Is(err, process.ErrOtherProgram), errors.Is(err, os.ErrProcessDone) && ended == now.PID:
				return notSlipway(name, now)
			case errors.Is(err, os.ErrProcessDone):
				ended = now.PID // the lock may be free in a moment
			case err != nil:
				return err
			default:
				asked = now.PID
				event.SendNote(progress, "", "stopping the operation on cluster "+name)
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
