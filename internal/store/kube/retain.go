package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/store/kube/archive"
	"slipway.dev/slipway/internal/store/kube/operationlog"
)

// keptOperations is the number of finished operations of a cluster that remain objects.
const keptOperations = 5

// Retain limits the records of a cluster. Operations whose journals lifecycle may read remain
// complete: see operation.NeedsOf. Of the others, the latest keptOperations remain objects with a
// summary of their journals, and so does each that must be listed. The rest are deleted.
//
// The order of writes for an operation is: its file in the archive, the index, the summary, the
// deletion of the other parts, the deletion of the Operation, which owns its plan and its parts. Before
// each deletion the file was read to its end. Another process can have written it, but none removes it.
// So after an interruption at any point nothing is missing, and the next Retain continues. It needs no
// lock: several can run at the same time.
//
// It also limits the records of deleted clusters, at most once in deletedInterval.
//
// If the archive is full or cannot be reached, the error is one diagnostic, and no record was
// removed.
func (s *Store) Retain(ctx context.Context, cluster string) error {
	if err := records.CheckName(cluster); err != nil {
		return fmt.Errorf("limiting records: %w", err)
	}
	r := retention{s.connection}
	if !r.archive.exists() && !r.WithoutArchive {
		return nil
	}
	err := r.ping(ctx)
	if err == nil {
		err = r.prune(ctx, cluster) // first, so that a full archive gets space
	}
	if err == nil {
		err = r.reduce(ctx, cluster)
	}
	if err == nil {
		err = r.prune(ctx, cluster)
	}
	if err == nil {
		err = r.limitDeleted(ctx)
	}
	if err != nil {
		return fmt.Errorf("limiting the records of cluster %s: %w", cluster, err)
	}
	return nil
}

var _ records.Retainer = (*Store)(nil)

type retention struct{ *connection }

// ping returns an error if the archive does not respond in time.
func (r retention) ping(ctx context.Context) error {
	if !r.archive.exists() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, archiveTime)
	defer cancel()
	return r.archive.files.Ping(ctx)
}

// prune applies the limits of the archive.
func (r retention) prune(ctx context.Context, cluster string) error {
	if !r.archive.exists() {
		return nil
	}
	return r.archive.files.Prune(ctx, []string{cluster}, r.ArchiveLimits, time.Now())
}

// reduce archives operations, oldest first, then removes records. An operation whose records are
// damaged does not stop the others.
func (r retention) reduce(ctx context.Context, cluster string) error {
	ops, err := operations(r).listObjects(ctx, cluster)
	if err != nil {
		return err
	}
	needs, left := operation.NeedsOf(ops), make([]bool, len(ops))
	finished := 0
	for i := range ops {
		if operation.HasEnded(&ops[i]) {
			finished++
			left[i] = finished <= keptOperations
		}
	}
	damaged := problems{}
	for i, o := range slices.Backward(ops) {
		switch {
		case needs[i] == operation.NeedsJournal:
			continue
		case needs[i] == operation.NeedsRecord || left[i]:
			err = r.shorten(ctx, &o)
		default:
			err = r.remove(ctx, &o)
		}
		if err := damaged.add(err); err != nil {
			return err
		}
	}
	return damaged.err
}

// problems are the errors of operations whose records are damaged. They do not stop the others.
type problems struct{ err error }

// add adds an error, unless it must stop the others: add returns it then.
func (p *problems) add(err error) error {
	var list diag.List
	if errors.As(err, &list) && !archive.IsUnavailable(err) && list[0].ID != idUnwritable {
		p.err = errors.Join(p.err, err)
		return nil
	}
	return err
}

// shorten replaces the journal of an operation by its summary, after the archive has it.
func (r retention) shorten(ctx context.Context, o *v1alpha1.Operation) error {
	parts, _, err := journals(r).listParts(ctx, o)
	if err != nil || len(parts) == 0 {
		return err
	}
	if !hasSummary(parts) {
		if err := r.put(ctx, o, parts); err != nil {
			return err
		}
		summary, err := operationlog.Summarize(o, parts)
		if err != nil {
			return err
		}
		if err := journals(r).createPart(ctx, &summary); err != nil {
			return err
		}
		if parts, _, err = journals(r).listParts(ctx, o); err != nil {
			return err
		}
	} else if err := r.putAgain(ctx, o, parts); err != nil {
		return err
	}
	replaced, err := operationlog.Replaced(o, parts)
	for i := range replaced {
		if err == nil {
			err = r.deleteObject(ctx, resourceLogs, &replaced[i])
		}
	}
	return err
}

// putAgain archives an operation with a summary, if other parts remain and the archive does not have
// it: the file of the interrupted call before can be lost.
func (r retention) putAgain(ctx context.Context, o *v1alpha1.Operation, parts []v1alpha1.OperationLog) error {
	complete := slices.DeleteFunc(slices.Clone(parts), func(p v1alpha1.OperationLog) bool {
		return p.Spec.Type == v1alpha1.OperationLogSummary
	})
	if len(complete) == 0 || !r.archive.exists() {
		return nil
	}
	err := r.archive.files.Verify(ctx, o)
	if err == nil || archive.IsUnavailable(err) || ctx.Err() != nil {
		return err
	}
	return r.put(ctx, o, complete)
}

// remove deletes an operation, after the archive has it.
func (r retention) remove(ctx context.Context, o *v1alpha1.Operation) error {
	parts, _, err := journals(r).listParts(ctx, o)
	if err != nil {
		return err
	}
	// Another process can have deleted it. If it exists now, the parts were complete before.
	now, err := operations(r).loadObject(ctx, o.Name)
	if errors.Is(err, records.ErrNotFound) || err == nil && now.UID != o.UID {
		return nil
	}
	if err != nil {
		return err
	}
	if err = r.put(ctx, o, parts); err == nil {
		err = r.deleteObject(ctx, resourceOperations, o)
	}
	return err
}

// put archives an operation. When it returns nil, the file was read again.
func (r retention) put(ctx context.Context, o *v1alpha1.Operation, parts []v1alpha1.OperationLog) error {
	if !r.archive.exists() {
		return nil
	}
	p, err := operations(r).loadPlanOf(ctx, o)
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return err
	}
	return r.archive.files.Put(ctx, archive.Record{
		Operation: o, Plan: p,
		Events: func(fn func(event.Event) error) error { return operationlog.ReadEvents(o, parts, fn) },
	})
}
