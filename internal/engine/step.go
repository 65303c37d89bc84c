package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/diag/errorcode"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/remote"
)

// checked is the result of a check.
type checked struct {
	step    plan.Step // an empty State means unchanged
	skipped bool      // not wanted here
	list    op.List
	results []op.Result
	scope   *Scope
}

func (r *Run) newScope(s *step) *Scope { return &Scope{run: r, step: s} }

// isDone reports whether a step succeeded earlier and must not be repeated. On a host
// without a ledger nothing is done: the host was reinstalled.
func (r *Run) isDone(s *step) bool {
	there := s.host == nil || s.host.Facts == nil || s.host.Facts.Ledger
	return s.task.Once && r.Done[stepKey(s)] && there
}

// checkStep returns what a step would do.
func (r *Run) checkStep(ctx context.Context, s *step, dirty *dirty) (*checked, error) {
	sc := r.newScope(s)
	t := s.task
	c := &checked{scope: sc, step: plan.Step{Module: s.module, Task: t.ID, Title: t.Title, Host: s.hostName()}}
	if t.When != nil && !t.When(sc) || r.isDone(s) {
		c.skipped = true
		return c, sc.err
	}
	if t.Run != nil {
		return c, r.checkAction(ctx, c)
	}
	return c, r.checkOps(ctx, c, dirty)
}

func (r *Run) checkAction(ctx context.Context, c *checked) error {
	sc := c.scope
	changes, err := sc.step.task.Run.Check(ctx, sc)
	if sc.err != nil {
		return sc.err
	}
	switch {
	case sc.pending != "": // the error may come from the missing value
		c.step.State, c.step.After, c.step.Changes = plan.Pending, sc.pending, changes
	case err != nil:
		return err
	case len(changes) > 0:
		c.step.State, c.step.Changes = plan.Change, changes
	}
	return nil
}

func (r *Run) checkOps(ctx context.Context, c *checked, dirty *dirty) error {
	sc := c.scope
	list, err := sc.step.task.Ops(sc)
	if err = errors.Join(err, sc.err); err != nil {
		return err
	}
	c.list = list
	if len(list) == 0 {
		return nil
	}
	if c.results, err = sc.step.host.Conn.Check(ctx, list); err != nil {
		return err
	}
	if len(c.results) != len(list) {
		return fmt.Errorf("the node helper returned %d results for %d operations", len(c.results), len(list))
	}
	uncheckable := true
	for i, res := range c.results {
		if res.Status == op.Failed {
			return res.Error
		}
		if res.Status == op.Unchanged {
			dirty.markChanged(sc.step.hostName(), list[i], &res)
		}
		if res.Status != op.Changed {
			continue
		}
		dirty.addChanged(sc.step.hostName(), list[i], res)
		uncheckable = uncheckable && hasNoGuard(list[i])
		c.step.Changes = append(c.step.Changes, plan.OpChange{Kind: res.Kind, Target: res.Target, Summary: res.Summary, Diff: res.Diff})
	}
	switch {
	case len(c.step.Changes) == 0:
	case sc.pending != "":
		c.step.State, c.step.After = plan.Pending, sc.pending
		for i := range c.step.Changes { // a value that is not known yet has no diff
			c.step.Changes[i].Diff = ""
		}
	case uncheckable:
		c.step.State = plan.Uncheckable
	default:
		c.step.State = plan.Change
	}
	return nil
}

// hasNoGuard reports whether an operation has no guard, so that it always runs.
func hasNoGuard(o op.Op) bool {
	e, ok := o.(op.Exec)
	return ok && len(e.Creates) == 0 && len(e.Unless) == 0 && len(e.Inputs) == 0
}

// provideUnchanged lets an unchanged step provide its values.
func (r *Run) provideUnchanged(ctx context.Context, s *step, c *checked) error {
	if s.task.After == nil || c.skipped || c.scope.pending != "" {
		return nil
	}
	return errors.Join(s.task.After(ctx, c.scope, c.results), c.scope.err)
}

// attemptStep applies a step, as often as its task allows. It holds no slot while it waits for
// the next attempt, because the failure may depend on a host that waits for a slot.
func (r *Run) attemptStep(ctx context.Context, s *step, g *gate, allowed *declaration, stop context.CancelCauseFunc) outcome {
	t := s.task
	if t.When != nil && !t.When(r.newScope(s)) || r.isDone(s) {
		return outcome{state: event.Skipped}
	}
	delay := t.Retry.Delay
	for try := 1; ; try++ {
		blocked, err := g.waitForSlot(ctx)
		if err != nil {
			return outcome{state: event.Cancelled}
		}
		if blocked != "" {
			return outcome{
				state:   event.Skipped,
				failure: &event.Failure{Reason: "Skipped", Message: "too many hosts failed in this task", CausedBy: blocked},
			}
		}
		if try == 1 {
			r.emitEvent(stop, event.Event{Type: event.StepStarted}, s)
		}
		o, again := r.tryOnce(ctx, s, try, allowed, stop)
		if o.state == event.Failed {
			g.countFailure(t.ID + " on " + s.hostName())
		}
		g.releaseSlot()
		if again == nil {
			return o
		}
		r.emitEvent(stop, event.Event{Type: event.StepRetry, Attempt: try, Message: again.Error()}, s)
		if pauseFor(ctx, delay) != nil {
			return outcome{state: event.Cancelled}
		}
		if t.Retry.Backoff > 0 {
			delay = time.Duration(float64(delay) * t.Retry.Backoff)
		}
	}
}

// tryOnce makes one attempt. again is the reason for another attempt.
func (r *Run) tryOnce(ctx context.Context, s *step, try int, allowed *declaration, stop context.CancelCauseFunc) (o outcome, again error) {
	t := s.task
	o, err := r.checkAndApply(ctx, s, allowed, stop)
	switch {
	case err == nil:
		return o, nil
	case ctx.Err() != nil:
		return outcome{state: event.Cancelled, message: err.Error()}, nil
	case try < t.Retry.Attempts && !isFinal(err):
		return outcome{}, err
	case t.IgnoreError:
		return outcome{state: event.Ignored, failure: ExplainFailure(err)}, nil
	}
	return failedOutcome(err), nil
}

// checkAndApply checks and applies a step within its time limit.
func (r *Run) checkAndApply(parent context.Context, s *step, allowed *declaration, stop context.CancelCauseFunc) (outcome, error) {
	t := s.task
	limit := t.Timeout
	if limit == 0 {
		limit = DefaultTimeout
	}
	ctx, cancel := context.WithTimeoutCause(parent, limit, &timeoutError{after: limit})
	defer cancel()
	o := outcome{state: event.Unchanged}
	for {
		c, err := r.checkStep(ctx, s, nil)
		if err != nil {
			return o, preferCause(ctx, err)
		}
		c.scope.emit = func(e event.Event) { r.emitEvent(stop, e, s) }
		results := c.results
		if c.step.State != "" {
			if c.scope.pending != "" {
				return o, fmt.Errorf("%q has no value: its provider did not run", c.scope.pending)
			}
			if err := allowed.permitStep(c.step); err != nil {
				return o, err
			}
			if results, err = r.applyChanges(ctx, limit, c, stop); err != nil {
				return o, preferCause(ctx, err)
			}
			o.state = event.Changed
			o.changes = eventChanges(c.step.Changes)
		}
		done := true
		if t.Until != nil {
			if done, err = t.Until(ctx, c.scope); err != nil {
				return o, preferCause(ctx, err)
			}
		}
		if done {
			if t.After != nil && !c.skipped {
				err = t.After(ctx, c.scope, results)
			}
			return o, preferCause(ctx, errors.Join(err, c.scope.err))
		}
		if err := pauseFor(ctx, max(t.Retry.Delay, 100*time.Millisecond)); err != nil {
			return o, preferCause(ctx, err)
		}
	}
}

// applyChanges applies the changes of a step.
func (r *Run) applyChanges(ctx context.Context, limit time.Duration, c *checked, stop context.CancelCauseFunc) ([]op.Result, error) {
	if err := r.syncEvents(stop); err != nil {
		return nil, err
	}
	s := c.scope.step
	if s.task.Run != nil {
		return nil, s.task.Run.Apply(ctx, c.scope)
	}
	if c.list.HasWholeStep() { // a cancelled operation waits for steps that must not be interrupted
		whole, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), limit, &timeoutError{after: limit})
		defer cancel()
		ctx = whole
	}
	batch := remote.Batch{Operation: r.Operation, Step: s.task.ID, Cluster: r.Cluster, Fence: r.Fence, Ops: c.list}
	results, err := s.host.Conn.Apply(ctx, batch, func(p remote.Progress) {
		e := event.Event{Type: event.StepProgress, Done: p.Done, Total: p.Total}
		if p.Op < len(c.list) {
			e.Message = c.list[p.Op].Target()
		}
		if len(p.Output) > 0 {
			e = event.Event{Type: event.StepOutput, Message: string(p.Output)}
		}
		r.emitEvent(stop, e, s)
	})
	if err != nil {
		return nil, err
	}
	for _, res := range results {
		if res.Status == op.Failed {
			return nil, res.Error
		}
	}
	return results, nil
}

func eventChanges(in []plan.OpChange) []event.Change {
	var out []event.Change
	for _, c := range in {
		out = append(out, event.Change{Kind: c.Kind, Target: c.Target, Summary: c.Summary})
	}
	return out
}

// preferCause prefers the cause of the context, such as a timeout, over the error that it led
// to.
func preferCause(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var late *timeoutError
	if errors.As(context.Cause(ctx), &late) {
		return fmt.Errorf("%w: %w", late, err)
	}
	return err
}

type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string { return fmt.Sprintf("timed out after %s", e.after) }

// isFinal reports whether another attempt cannot help.
func isFinal(err error) bool {
	var stale *staleError
	var oe *op.Error
	return errors.As(err, &stale) ||
		errors.As(err, &oe) && slices.Contains([]string{"Fenced", op.ReasonNotServing, op.ReasonUnhealthy}, oe.Reason)
}

// ExplainFailure converts an error into a failure for the user.
func ExplainFailure(err error) *event.Failure {
	f := &event.Failure{Reason: "Error", Message: err.Error()}
	var (
		oe    *op.Error
		re    *remote.Error
		late  *timeoutError
		stale *staleError
		list  diag.List
	)
	switch {
	case errors.As(err, &late):
		f.Reason = "Timeout"
	case errors.As(err, &oe):
		f.Reason, f.Message, f.Detail, f.Remedy = oe.Reason, oe.Message, oe.Detail, remedyFor(oe.Reason)
	case errors.As(err, &re):
		f.Reason, f.Message, f.Remedy = string(re.Reason), re.Cause, re.Remedy
	case errors.As(err, &stale):
		f.Reason, f.Remedy = "PlanStale", "plan again"
	case errors.As(err, &list) && len(list) == 1:
		f.Reason, f.Message, f.Remedy = list[0].ID, list[0].Message, list[0].Hint
	case errors.As(err, &list) && len(list) > 0:
		f.Reason, f.Message, f.Remedy, f.Detail = list[0].ID, list[0].Message, list[0].Hint, list[1:].Error()
	}
	f.Code = errorcode.Of(f.Reason, err)
	return f
}

// remedyFor returns the hint for failures that have the same remedy wherever they occur.
func remedyFor(reason string) string {
	switch reason {
	case op.IDEtcdQuorum:
		return "start the members that do not answer, or remove them first, one at a time: slipway delete node NAME --forget"
	case op.IDEtcdNameTaken:
		return "remove the existing member first: slipway delete node NAME"
	case op.IDAuthorityNoKey:
		return "restore the key from a backup or from another host that has it"
	case op.IDAuthorityExpired:
		return "read docs/guide/certificates.md: nothing accepts certificates of an expired CA"
	case op.IDCertificateForeign:
		return "restore the previous certificate or CA, or renew the certificate where it was issued"
	case op.IDCertificateRequest:
		return "check the key on the host, move it away if it is weak or not yours, then resume"
	case "DiskFull":
		return "free disk space on the host, or mount a larger disk, then resume"
	case "BlobCorrupt":
		return "run 'slipway bundle verify', copy or build the bundle again, then resume"
	case op.ReasonEtcdDataLost:
		return "mount the disk that holds the data, or, if the data is lost, delete the node and add it again"
	case op.ReasonNotServing:
		return "read 'journalctl -u kubelet' on the host, fix the cause, then resume. If the cluster file is the cause, correct and apply it. " +
			"If the host cannot be repaired, remove it while other nodes are healthy: slipway delete node NAME " +
			"(--forget if the host does not answer)"
	case op.ReasonUnhealthy:
		return "read 'journalctl' on the host, then correct the cluster file and apply it"
	case op.ReasonEtcdRemoved:
		return "reset the host before you add it again: slipway delete node NAME"
	case op.ReasonEtcdBusy:
		return "start that host, or, if it is permanently lost, remove it: slipway delete node NAME --forget"
	case op.IDLedgerLost:
		return "restore the ledger from a backup, then resume"
	}
	return ""
}

// A declaration lists what a plan allows a step to do.
type declaration struct {
	any     bool
	changes map[string]bool
}

func declareSteps(steps []plan.Step) map[string]*declaration {
	out := map[string]*declaration{}
	for _, s := range steps {
		d := &declaration{any: s.State == plan.Uncheckable, changes: map[string]bool{}}
		for _, c := range s.Changes {
			d.changes[string(c.Kind)+" "+c.Target] = true
		}
		out[s.Task+"@"+s.Host] = d
	}
	return out
}

// permitStep returns an error if a step would do more than was declared. Waits always pass:
// they change nothing, and an earlier declared step may have stopped their target.
func (d *declaration) permitStep(s plan.Step) error {
	for _, c := range s.Changes {
		if c.Kind == op.KindWait || c.Kind == op.KindHealthGate {
			continue
		}
		name := string(c.Kind) + " " + c.Target
		if d == nil || !d.any && !d.changes[name] {
			return &staleError{what: name}
		}
	}
	return nil
}

type staleError struct{ what string }

func (e *staleError) Error() string {
	return "would change " + e.what + ", which is not in the plan: the host changed after the plan was made"
}
