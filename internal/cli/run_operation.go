package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	kinds "slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/plan"
)

// A prepareFunc makes a plan: it calls one of the service's methods with a request.
type prepareFunc func(ctx context.Context, svc planner, progress event.Sink) (lifecycle.Prepared, error)

// prepareRequest returns a function that prepares a request.
func prepareRequest(r lifecycle.Request) prepareFunc {
	return func(ctx context.Context, svc planner, progress event.Sink) (lifecycle.Prepared, error) {
		return svc.Prepare(ctx, r, progress)
	}
}

// An operation is an operation as a command requests it.
type operation struct {
	prepare prepareFunc
	file    string // the cluster file, for the summary
	// isNamedByUser reports whether the user gave the cluster's name on the command
	// line. Together with --yes it allows the removal.
	isNamedByUser bool
	allowRemoval  bool
	// isConfirmed reports whether the user confirmed the operation when it first
	// began.
	isConfirmed bool
	brief       bool // show the plan without its changes
}

// An operationRunner plans operations, asks for confirmation, and applies them.
type operationRunner struct {
	*console
	open     opener[planner]
	contexts *mergedContexts
	working  atomic.Pointer[string] // the cluster of the running operation
}

// operationCommand holds what commands need that run an operation on a cluster.
type operationCommand struct {
	clusters *clusterChooser
	subjects *subjectReader
	runner   *operationRunner
}

// runOperation plans an operation, asks for confirmation, and applies it.
func (r *operationRunner) runOperation(ctx context.Context, o operation) error {
	_, err := r.runForResult(ctx, o)
	return err
}

// runForResult is like runOperation and returns the result, or nil if nothing was
// applied.
func (r *operationRunner) runForResult(ctx context.Context, o operation) (res *lifecycle.Result, err error) {
	p, err := r.preparePlan(ctx, o.prepare, r.newView(nil))
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := p.Close(); cerr != nil && err == nil {
			err = cerr
		}
	}()
	pl := p.Plan()
	if !pl.IsEmpty() && !o.isConfirmed {
		if err := r.showAndConfirm(ctx, p, o); err != nil {
			return nil, err
		}
	}
	removeContexts := func() {}
	if kinds.Kind(pl.Operation).RemovesCluster() {
		removeContexts = r.contexts.prepareRemoval(ctx, pl.Cluster)
	}
	res, err = r.applyPlan(ctx, p)
	if res == nil {
		return nil, markRefused(err)
	}
	if res.Outcome == event.Succeeded || res.Forgotten {
		removeContexts()
	}
	ended := r.reportEnd(res, o, pl)
	if err != nil { // the operation ran, but its result could not be saved
		if ended != nil && isReported(res, err) {
			return res, ended
		}
		return res, &exitError{code: exitFailed, err: err}
	}
	return res, ended
}

// showAndConfirm shows a plan and asks the user to confirm it. It returns an error unless
// the user does.
func (r *operationRunner) showAndConfirm(ctx context.Context, p lifecycle.Prepared, o operation) error {
	if r.format == view.Text || r.CanAsk && !r.yes { // the user must see the plan before the question
		if err := view.WritePlan(r.Err, p.Plan(), o.brief, r.errStyle()); ignoreReaderGone(err) != nil {
			return err
		} else if err != nil && !r.yes {
			return newProblem(idNotConfirmed, "run the command again with --yes, or read its output to the end",
				"the output of the plan was closed before its end; nothing was changed")
		}
	}
	return r.confirmPlan(ctx, p, o)
}

// preparePlan makes the plan, shows the progress in v, and prints warnings. The caller
// closes the plan.
func (r *operationRunner) preparePlan(ctx context.Context, do prepareFunc, v view.View) (lifecycle.Prepared, error) {
	p, err := r.prepareInQueue(ctx, do, v)
	if err != nil {
		return nil, markRefused(err)
	}
	r.printDiagnostics(p.Findings().Warnings())
	return p, nil
}

func (r *operationRunner) prepareInQueue(ctx context.Context, do prepareFunc, v view.View) (lifecycle.Prepared, error) {
	q := view.NewQueue(v, r.env.Now)
	defer r.drainQueue(ctx, q)
	svc, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.logs.redirect(q)()
	return do(ctx, svc, q)
}

// isReported reports whether an error is one of an operation's failures, which were
// printed already.
func isReported(res *lifecycle.Result, err error) bool {
	var list diag.List
	return errors.As(err, &list) && !slices.ContainsFunc(list, func(d diag.Diagnostic) bool {
		return !slices.ContainsFunc(res.Failures, func(f lifecycle.HostFailure) bool { return f.Reason == d.ID && f.Message == d.Message })
	})
}

// applyPlan applies a plan and shows its progress. The work does not wait for the reader
// of the output. At the end applyPlan waits for the reader, unless ctx is done.
func (r *operationRunner) applyPlan(ctx context.Context, p lifecycle.Prepared) (*lifecycle.Result, error) {
	pl := p.Plan()
	v := view.NewQueue(r.newView(pl), r.env.Now)
	defer r.drainQueue(ctx, v)
	defer r.logs.redirect(v)()
	r.working.Store(&pl.Cluster)
	defer r.working.Store(nil)
	printed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(printed)
		r.printStopping(v, pl)
	})
	res, err := p.Apply(ctx, v)
	if !stop() {
		<-printed
	}
	return res, err
}

// printStopping prints, after a signal, which steps the program waits for and how to
// continue later.
func (r *operationRunner) printStopping(v *view.Queue, p *plan.Plan) {
	steps := ""
	if running := v.RunningSteps(); len(running) > 0 {
		steps = ": " + strings.Join(running[:min(len(running), 3)], ", ")
		if n := len(running) - 3; n > 0 {
			steps += fmt.Sprintf(" and %d more", n)
		}
	}
	fmt.Fprintf(v, "Stopping: waiting until running steps reach a safe point%s.\n", steps)
	next := kinds.Kind(p.Operation).Resume(kinds.End{Cluster: p.Cluster})
	fmt.Fprintf(v, "Press Ctrl-C again to stop waiting. Run '%s' to continue later.\n", next)
}

// confirmPlan asks the user to confirm a plan. It returns an error unless the user does.
func (r *operationRunner) confirmPlan(ctx context.Context, prepared lifecycle.Prepared, o operation) error {
	p := prepared.Plan()
	if len(p.Removes) == 0 || o.allowRemoval || o.isNamedByUser && r.yes {
		return r.askYesNo(ctx, "Continue?")
	}
	whose, name := "cluster", p.Cluster
	if leaving := prepared.Leaving(); len(leaving) == 1 {
		whose, name = "host", leaving[0]
	}
	if !r.CanAsk {
		return newProblem(idRemoval, "allow the removal with --allow-removal, or type the "+whose+"'s name on a terminal",
			"the plan removes %s", strings.Join(p.Removes, ", "))
	}
	return r.askForAnswer(ctx, fmt.Sprintf("Type the %s's name (%s) to confirm the removal: ", whose, name), name)
}
