package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/store/kube/archive"
)

const (
	// archiveTime limits a read of the archive, without events.
	archiveTime = 10 * time.Second
	// archivePause is how long the archive is not read after a failure: each list would wait for
	// an archive that does not respond.
	archivePause = time.Minute
)

// An archiveReader reads the archive.
type archiveReader struct {
	files *archive.Archive // nil if there is none

	mu     sync.Mutex
	failed time.Time
	err    error // the latest, nil after a success
}

func (a *archiveReader) exists() bool { return a.files != nil }

// readArchive calls read, which must not take longer than limit; zero means no limit. For a while
// after a failure it returns the same error instead.
func (c *connection) readArchive(ctx context.Context, limit time.Duration, read func(context.Context, *archive.Archive) error) error {
	a := &c.archive
	a.mu.Lock()
	known := a.err
	if time.Since(a.failed) > archivePause {
		known = nil
	}
	a.mu.Unlock()
	if known != nil {
		return known
	}
	inner := ctx
	if limit > 0 {
		var cancel context.CancelFunc
		inner, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	err := read(inner, a.files)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err = nil; archive.IsUnavailable(err) && ctx.Err() == nil {
		a.failed, a.err = time.Now(), err
		c.Log.Warn("the archive of operations cannot be read", "error", err)
	}
	return err
}

// listArchived returns the operations of a cluster in the archive, and its problems.
func (s operations) listArchived(ctx context.Context, cluster string) (out []v1alpha1.Operation, damaged diag.List, err error) {
	if !s.archive.exists() {
		return nil, nil, nil
	}
	err = s.readArchive(ctx, archiveTime, func(ctx context.Context, a *archive.Archive) error {
		lines, list, err := a.List(ctx, cluster)
		for _, l := range lines {
			out = append(out, l.Operation)
		}
		damaged = list
		return err
	})
	var list diag.List
	if errors.As(err, &list) {
		return nil, list, nil
	}
	return out, damaged, err
}

// findArchived returns the ids in the archive that begin with prefix. If the archive cannot be
// read, only the ids of objects are known.
func (s operations) findArchived(ctx context.Context, prefix string) (ids []string, err error) {
	if !s.archive.exists() {
		return nil, nil
	}
	err = s.readArchive(ctx, archiveTime, func(ctx context.Context, a *archive.Archive) (err error) {
		ids, err = a.Find(ctx, prefix)
		return err
	})
	if archive.IsUnavailable(err) {
		return nil, nil
	}
	return ids, err
}

// loadArchived returns an operation in the archive and its plan, which can be nil. See archive.Load.
func (s operations) loadArchived(ctx context.Context, id string, uid types.UID) (o *v1alpha1.Operation, p *plan.Plan, err error) {
	err = s.readArchive(ctx, archiveTime, func(ctx context.Context, a *archive.Archive) (err error) {
		o, p, err = a.Load(ctx, id, uid)
		return err
	})
	return o, p, err
}

// isShortened reports whether only the archive can have all events of an operation.
func isShortened(o *v1alpha1.Operation, parts []v1alpha1.OperationLog) bool {
	return len(parts) == 0 && operation.HasEnded(o) || hasSummary(parts)
}

func hasSummary(parts []v1alpha1.OperationLog) bool {
	return slices.ContainsFunc(parts, func(p v1alpha1.OperationLog) bool { return p.Spec.Type == v1alpha1.OperationLogSummary })
}

// readArchived calls fn for each event of an operation in the archive. It returns false if fn was not
// called, because the archive does not have the operation, or cannot be read. See archive.Load.
func (s journals) readArchived(ctx context.Context, id string, uid types.UID, fn func(event.Event) error) (called bool, err error) {
	err = s.readArchive(ctx, 0, func(ctx context.Context, a *archive.Archive) error {
		return a.ReadEvents(ctx, id, uid, func(e event.Event) error {
			called = true
			return fn(e)
		})
	})
	if err != nil {
		err = fmt.Errorf("reading the journal of operation %s: %w", id, err)
	}
	return called || err == nil, err
}
