package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/sharedsync"
	"slipway.dev/slipway/internal/store/kube/operationlog"
)

const (
	// holderInterval is the time between two looks at the holder of the lock.
	holderInterval = time.Second
	// gapTime is how long a reader waits for a missing part before the journal counts as damaged.
	gapTime = 10 * time.Second
)

// A follower reads the events of an operation while it runs.
type follower struct {
	journals
	op *v1alpha1.Operation
	fn func(event.Event) error

	position int64 // of the last event that was read
	finished bool  // it was the end of the operation
	gapSince time.Time
}

// FollowEvents is ReadEvents that continues with new events until the operation has finished (nil),
// its process no longer runs (records.ErrNoEnd), or ctx is done. It reads a list, then a watch from
// the version of the list. If the watch ends, it reads a list again.
func (s journals) FollowEvents(ctx context.Context, id string, fn func(event.Event) error) error {
	o, err := operations(s).loadObject(ctx, id)
	if errors.Is(err, records.ErrNotFound) {
		return s.ReadEvents(ctx, id, fn) // only the archive can have it
	}
	if err != nil {
		return err
	}
	f := &follower{journals: s, op: o, fn: fn}
	for {
		// The holder is asked before the journal is read to its end, so that none of its last
		// events is missed.
		runs, err := f.isRunning(ctx)
		if err != nil {
			return err
		}
		position := f.position
		parts, version, err := s.listParts(ctx, o)
		if err == nil && f.position == 0 && isShortened(o, parts) {
			return s.ReadEvents(ctx, id, fn)
		}
		if err == nil {
			err = f.readParts(parts)
		}
		switch {
		case err != nil:
			return fmt.Errorf("following operation %s: %w", id, err)
		case f.finished:
			return nil
		case !runs && f.position == position && f.gapSince.IsZero():
			return fmt.Errorf("following operation %s: %w", id, records.ErrNoEnd)
		}
		if err := f.watchParts(ctx, version); err != nil {
			return fmt.Errorf("following operation %s: %w", id, err)
		}
		if f.finished {
			return nil
		}
		if err := waitFor(ctx, sharedsync.Delay); err != nil {
			return err
		}
	}
}

// isRunning reports whether a process runs the operation, or begins to run one.
func (f *follower) isRunning(ctx context.Context) (bool, error) {
	h, err := locks(f.journals).Holder(ctx, f.op.Spec.ClusterRef.Name)
	return h != nil && (h.Operation == f.op.Name || h.Operation == ""), err
}

// readParts reads the newer events of parts. A gap is an error only when gapTime is over: the list can be
// older than a merge.
func (f *follower) readParts(parts []v1alpha1.OperationLog) error {
	position, err := operationlog.ReadNewer(f.op, parts, f.position, func(e event.Event) error {
		f.finished = e.Type == event.OperationFinished
		return f.fn(e)
	})
	f.position = position
	var gap *operationlog.GapError
	switch {
	case !errors.As(err, &gap):
		f.gapSince = time.Time{}
		return err
	case f.gapSince.IsZero():
		f.gapSince = time.Now()
	case time.Since(f.gapSince) > gapTime:
		return operationlog.ReadEvents(f.op, parts, func(event.Event) error { return nil }) // explains the gap
	}
	return nil
}

// watchTime limits a watch for parts. Its end is not an error. After it, the parts are listed: a connection can be
// silent without an end.
const watchTime = 2 * time.Second

// watchParts reads new parts until the operation ends, the watch ends, or it is time to look at the
// holder.
func (f *follower) watchParts(ctx context.Context, version string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, watchTime, errWatchEnd)
	defer cancel()
	w, err := f.own.Get().Namespace(f.Namespace).Resource(resourceLogs).
		Param("watch", "true").Param("labelSelector", selectorOf(f.op)).Param("resourceVersion", version).Watch(ctx)
	if err != nil {
		return nil //nolint:nilerr // the next list reports an error that lasts
	}
	defer w.Stop()
	tick := time.NewTicker(holderInterval)
	defer tick.Stop()
	for !f.finished && f.gapSince.IsZero() {
		select {
		case e, open := <-w.ResultChan():
			part, ok := e.Object.(*v1alpha1.OperationLog)
			switch {
			case !open || !ok: // an expired version, or another error
				return nil
			case e.Type == watch.Added:
				if err := f.readParts([]v1alpha1.OperationLog{*part}); err != nil {
					return err
				}
			}
		case <-tick.C:
			if runs, err := f.isRunning(ctx); err != nil || !runs {
				return err
			}
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errWatchEnd) {
				return nil
			}
			return context.Cause(ctx)
		}
	}
	return nil
}

var errWatchEnd = errors.New("the watch ends")
