package lifecycle

import (
	"context"
	"errors"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/diag/errorcode"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/clusterlock"
	"slipway.dev/slipway/internal/lifecycle/journal"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/status"
)

// endedRun is the title of the failure that ended the run of all steps.
const endedRun = "run operation"

// noteCancel emits a note when a user requests to cancel the operation. end waits for the note.
func noteCancel(ctx context.Context, notes event.Sink) (end func()) {
	noted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(noted)
		var cancelled *savedstate.CancelledError
		if errors.As(context.Cause(ctx), &cancelled) {
			note(notes, "", cancelled.Error())
		}
	})
	return func() {
		if !stop() {
			<-noted
		}
	}
}

// abandon saves that a new operation never began: it changed nothing.
func (p execution) abandon(ctx context.Context, o *v1alpha1.Operation, why error) error {
	if p.continues != nil {
		return nil
	}
	saving := context.WithoutCancel(ctx)
	events, err := p.svc.Records.Journals().Open(saving, o.Name)
	if err != nil {
		return err
	}
	last := p.lastEvent(o, event.Failed)
	last.Message = why.Error()
	if ctx.Err() != nil && errors.Is(why, context.Cause(ctx)) {
		last.Outcome = event.Cancelled
	} else {
		last.Failure = explainFailure(why)
	}
	err = journal.NewRecorder(events, events.LastSeq(), p.svc.Now, nil).Emit(last)
	err = errors.Join(err, events.Close(), p.reduceStatus(saving, o))
	return errors.Join(err, p.svc.Records.Operations().Save(saving, o))
}

// explainFailure converts the error that ended an operation into a failure for the user.
func explainFailure(err error) *event.Failure {
	f := engine.ExplainFailure(err)
	var locked *LockedError
	switch {
	case errors.As(err, &locked):
		f.Reason = idLocked
	case errors.Is(err, clusterlock.ErrLost):
		f.Reason = "LockLost"
	default:
		return f
	}
	f.Code = errorcode.Of(f.Reason, nil)
	return f
}

func (p execution) lastEvent(o *v1alpha1.Operation, end event.Outcome) event.Event {
	return event.Event{Type: event.OperationFinished, Operation: o.Name, Cluster: p.env.Cluster.Name, Outcome: end}
}

// reduceStatus sets the status of an operation from its journal.
func (p execution) reduceStatus(ctx context.Context, o *v1alpha1.Operation) error {
	var reducer status.Reducer
	err := p.svc.Records.Journals().ReadEvents(ctx, o.Name, func(e event.Event) error { reducer.Emit(e); return nil })
	if err != nil {
		return err // a status of some of the events would be wrong
	}
	was := o.Status
	o.Status = reducer.Status()
	// A backend keeps the fields that others set.
	o.Status.Plan, o.Status.Parameters, o.Status.Attempt, o.Status.Backup = was.Plan, was.Parameters, was.Attempt, was.Backup
	return nil
}

// finish saves the end of an operation. A removed cluster leaves the records before anything reports the
// success: if the removal fails, the operation has failed and can be resumed.
func (p execution) finish(ctx context.Context, o *v1alpha1.Operation, rec *journal.Recorder, res *Result) error {
	forgets := p.request.forget && res.Outcome == event.Partial
	removes := p.kind.RemovesCluster() && (res.Outcome == event.Succeeded || forgets)
	var unremoved error
	if removes {
		if unremoved = p.removeCluster(ctx, o); unremoved != nil {
			removes, res.Outcome = false, event.Failed
			res.Failures = append(res.Failures, HostFailure{Title: endedRun, Failure: *explainFailure(unremoved)})
		}
	}
	res.Forgotten = removes && forgets
	last := p.lastEvent(o, res.Outcome)
	if f := p.decisiveFailure(res); f != nil {
		last.Task, last.Title, last.Host, last.Failure = f.Task, f.Title, f.Host, &f.Failure
	}
	err := rec.Emit(last)
	if errors.Is(err, records.ErrLost) {
		return err // another process continues the operation
	}
	err = errors.Join(unremoved, err, p.reduceStatus(ctx, o))
	if !removes {
		err = errors.Join(err, p.saveCluster(ctx, o, res))
	}
	if err != nil && res.Outcome == event.Succeeded {
		return err // a saved success could not be resumed
	}
	return errors.Join(err, p.svc.Records.Operations().Save(ctx, o))
}

// removeCluster removes the saved cluster. Its hosts are reset: after an interruption, they may no
// longer exist.
func (p execution) removeCluster(ctx context.Context, o *v1alpha1.Operation) error {
	o.Status.Reason = reasonRemoving
	if err := p.svc.Records.Operations().Save(ctx, o); err != nil {
		return err
	}
	return p.svc.Records.Clusters().Remove(ctx, p.env.Cluster.Name)
}

// saveCluster saves the cluster after an operation. It is saved before the operation: after an
// interruption in between, the operation can be resumed and finds nothing to do.
func (p execution) saveCluster(ctx context.Context, o *v1alpha1.Operation, res *Result) (err error) {
	if p.kind.CreatesCluster() && res.Outcome == event.Partial ||
		p.kind.NeedsBundle() && p.kind.SetsStatus() && res.Outcome == event.Succeeded {
		err = p.svc.Records.Clusters().KeepSource(ctx, p.env.Cluster.Name)
	}
	return errors.Join(err, p.note(ctx, o, func(st *v1alpha1.ClusterStatus) error { return p.noteEnd(ctx, st, res.Outcome) }))
}

// retainTime limits the time after an operation in which records are archived.
const retainTime = 30 * time.Second

// retainRecords limits the records of the cluster. It needs no lock, and its failure is not a failure of
// the operation: the next one tries again. Only a success finishes earlier operations for good.
func (p execution) retainRecords(ctx context.Context, res *Result) {
	limited, ok := p.svc.Records.(records.Retainer)
	if !ok || p.under != nil || res == nil || res.Operation == "" || res.Outcome != event.Succeeded {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, retainTime)
	defer cancel()
	err := limited.Retain(ctx, res.Cluster)
	var list diag.List
	switch {
	case errors.As(err, &list):
		p.svc.WarnOf(list)
	case err != nil:
		p.svc.Log.Warn("the records of finished operations were not limited", "error", err)
	}
}

// decisiveFailure returns the failure that decided the outcome of an operation, nil if there is
// none: the error that ended the run, the first failure with which the whole operation has
// failed, or the first failure.
func (p execution) decisiveFailure(res *Result) *HostFailure {
	for _, decides := range []func(f HostFailure) bool{
		func(f HostFailure) bool { return f.Title == endedRun && f.Task == "" },
		func(f HostFailure) bool { return res.Outcome == event.Failed && p.firstFailed([]HostFailure{f}) },
		func(HostFailure) bool { return true },
	} {
		if i := slices.IndexFunc(res.Failures, decides); i >= 0 {
			return &res.Failures[i]
		}
	}
	return nil
}
