package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/sharedsync"
	"slipway.dev/slipway/internal/store/kube/operationlog"
)

// journals is the store of the events of operations.
type journals struct{ *connection }

const resourceLogs = "operationlogs"

// A journal is the journal of one operation: a part for each write, which callers at the same time
// share. See records.Journal.
type journal struct {
	journals
	op      *v1alpha1.Operation
	ctx     context.Context //nolint:containedctx // of work in the background; without cancellation
	encoder *operationlog.Encoder
	writer  *sharedsync.Writer

	mu        sync.Mutex // for the fields below
	segments  int        // that are not merged
	isMerging bool
	merging   sync.WaitGroup
}

// Open opens the journal of an operation for appending. The caller holds the cluster's lock.
func (s journals) Open(ctx context.Context, id string) (records.Journal, error) {
	o, err := operations(s).loadObject(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	parts, _, err := s.listParts(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("opening the journal of operation %s: %w", id, err)
	}
	j := &journal{journals: s, op: o, ctx: context.WithoutCancel(ctx)}
	j.writer = sharedsync.New(j.beginWrite, func(err error) error { return fmt.Errorf("writing the journal of operation %s: %w", id, err) })
	turns := rate.NewLimiter(rate.Limit(s.PartsPerSecond), PartsBurst)
	j.writer.SetPace(func() { _ = turns.Wait(j.ctx) }) // j.ctx does not end
	last, err := operationlog.VerifyJournal(o, parts)
	if err != nil {
		return nil, fmt.Errorf("opening the journal of operation %s: %w", id, err)
	}
	for _, p := range parts {
		if p.Spec.Type == v1alpha1.OperationLogSegment {
			j.segments++
		}
	}
	j.encoder = operationlog.NewEncoder(o, last)
	return j, nil
}

// selectorOf selects the parts of an operation.
func selectorOf(o *v1alpha1.Operation) string {
	return v1alpha1.LabelOperationUID + "=" + string(o.UID)
}

// listParts returns the parts of an operation, and the version of the list.
func (s journals) listParts(ctx context.Context, o *v1alpha1.Operation) (parts []v1alpha1.OperationLog, version string, err error) {
	err = s.repeat(ctx, func(ctx context.Context) error {
		var list v1alpha1.OperationLogList
		err := s.own.Get().Namespace(s.Namespace).Resource(resourceLogs).Param("labelSelector", selectorOf(o)).Do(ctx).Into(&list)
		parts, version = list.Items, list.ResourceVersion
		return err
	})
	return parts, version, err
}

// LastSeq returns the highest event number in the journal, 0 if it is empty.
func (j *journal) LastSeq() (seq int64) {
	j.writer.CallLocked(func() { seq = j.encoder.Last() })
	return seq
}

// Append adds an event, without waiting until it is durable.
func (j *journal) Append(e event.Event) error {
	return j.writer.Add(func() error { return j.encoder.Add(e) })
}

// Sync returns when all events that were appended before are durable.
func (j *journal) Sync() error { return j.writer.Sync() }

// Close syncs and closes the journal, and waits for the end of a merge. It does not repeat an error
// that Append or Sync has returned.
func (j *journal) Close() error {
	err := j.writer.Close()
	j.merging.Wait()
	return err
}

// beginWrite returns the function that writes the parts with the events since the last write.
func (j *journal) beginWrite() (write func() error) {
	parts := j.encoder.Flush()
	return func() error {
		for i := range parts {
			if err := j.createPart(j.ctx, &parts[i]); err != nil {
				return err
			}
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		j.segments += len(parts)
		j.startMerge()
		return nil
	}
}

// createPart creates a part. An earlier call can have created it. Another part with its name is from
// another process that has taken the cluster's lock.
func (s journals) createPart(ctx context.Context, part *v1alpha1.OperationLog) error {
	return s.repeat(ctx, func(ctx context.Context) error {
		err := s.own.Post().Namespace(s.Namespace).Resource(resourceLogs).Body(part).Do(ctx).Error()
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		is := new(v1alpha1.OperationLog)
		if err := s.own.Get().Namespace(s.Namespace).Resource(resourceLogs).Name(part.Name).Do(ctx).Into(is); err != nil {
			return err
		}
		switch {
		case is.Spec.OperationRef.UID != part.Spec.OperationRef.UID:
			return apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.Group, Resource: resourceLogs}, part.Name,
				errors.New("a part of a deleted operation is being removed"))
		case is.Spec.Digest == part.Spec.Digest && is.Spec.LastEvent == part.Spec.LastEvent:
			return nil
		case part.Spec.Type == v1alpha1.OperationLogSegment:
			return fmt.Errorf("another process has written part %s: %w", part.Name, records.ErrLost)
		}
		return fmt.Errorf("part %s exists with other events", part.Name) // the next merge reads it
	})
}

// startMerge merges segments in the background when there are enough. The caller holds mu.
func (j *journal) startMerge() {
	if j.segments < operationlog.MergeCount || j.isMerging {
		return
	}
	j.isMerging = true
	j.merging.Go(func() {
		left, err := j.mergeSegments(j.ctx, j.op)
		if err != nil { // segments are as good as chunks; the next merge includes them
			j.Log.Warn("segments of a journal were not merged", "operation", j.op.Name, "error", err)
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		j.isMerging, j.segments = false, left
	})
}

// mergeSegments replaces segments by chunks, and returns the number of the other segments.
func (s journals) mergeSegments(ctx context.Context, o *v1alpha1.Operation) (left int, err error) {
	parts, _, err := s.listParts(ctx, o)
	if err != nil {
		return 0, err
	}
	chunks, err := operationlog.Merge(o, parts, false)
	if err != nil {
		return 0, err
	}
	for i := range chunks {
		if err := s.createPart(ctx, &chunks[i]); err != nil {
			return 0, err
		}
	}
	if parts, _, err = s.listParts(ctx, o); err != nil {
		return 0, err
	}
	replaced, err := operationlog.Replaced(o, parts)
	if err != nil {
		return 0, err
	}
	for _, p := range parts {
		if p.Spec.Type == v1alpha1.OperationLogSegment {
			left++
		}
	}
	for _, p := range replaced {
		if err := s.deleteObject(ctx, resourceLogs, &p); err != nil {
			return left, err
		}
		left--
	}
	return left, nil
}

// deleteObject deletes an object of Slipway. A missing one is deleted already, also if another object
// has its name.
func (c *connection) deleteObject(ctx context.Context, resource string, o metav1.Object) error {
	return c.repeat(ctx, func(ctx context.Context) error {
		err := c.own.Delete().Namespace(c.Namespace).Resource(resource).Name(o.GetName()).
			Body(metav1.NewPreconditionDeleteOptions(string(o.GetUID()))).Do(ctx).Error()
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	})
}

// ReadEvents calls fn for each event of an operation, in order, and stops at the first error of fn.
func (s journals) ReadEvents(ctx context.Context, id string, fn func(event.Event) error) error {
	o, err := operations(s).loadObject(ctx, id)
	if errors.Is(err, records.ErrNotFound) && s.archive.exists() {
		_, err = s.readArchived(ctx, id, "", fn)
		return err
	}
	if err != nil {
		return err
	}
	parts, _, err := s.listParts(ctx, o)
	if err == nil && isShortened(o, parts) && s.archive.exists() {
		if complete, err := s.readArchived(ctx, id, o.UID, fn); complete {
			return err
		}
	}
	if err == nil {
		err = operationlog.ReadEvents(o, parts, fn)
	}
	if err != nil {
		return fmt.Errorf("reading the journal of operation %s: %w", id, err)
	}
	return nil
}
