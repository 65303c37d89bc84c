package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/remote"
)

// checked is what a check found.
type checked struct {
	step    plan.Step // State "" is unchanged
	skipped bool      // not wanted here
	list    op.List
	results []op.Result
	scope   *Scope
}

func (r *Run) scope(s *step) *Scope { return &Scope{run: r, step: s} }

// done says that a step has succeeded before and is not to be repeated. Of a host that
// has no ledger nothing is done: it was installed anew since.
func (r *Run) done(s *step) bool {
	there := s.host == nil || s.host.Facts == nil || s.host.Facts.Ledger
	return s.task.Once && r.Done[key(s)] && there
}

// check finds out what a step would do.
func (r *Run) check(ctx context.Context, s *step, dirty *dirty) (*checked, error) {
	sc := r.scope(s)
	t := s.task
	c := &checked{scope: sc, step: plan.Step{Module: s.module, Task: t.ID, Title: t.Title, Host: s.hostName()}}
	if t.When != nil && !t.When(sc) || r.done(s) {
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
	case sc.pending != "": // an error is no wonder then
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
		return fmt.Errorf("the node helper answered %d results for %d operations", len(c.results), len(list))
	}
	uncheckable := true
	for i, res := range c.results {
		if res.Status == op.Failed {
			return res.Error
		}
		if res.Status == op.Unchanged {
			dirty.judge(sc.step.hostName(), list[i], &res)
		}
		if res.Status != op.Changed {
			continue
		}
		dirty.add(sc.step.hostName(), list[i])
		uncheckable = uncheckable && unchecked(list[i])
		c.step.Changes = append(c.step.Changes, plan.OpChange{Kind: res.Kind, Target: res.Target, Summary: res.Summary, Diff: res.Diff})
	}
	switch {
	case len(c.step.Changes) == 0:
	case sc.pending != "":
		c.step.State, c.step.After = plan.Pending, sc.pending
		for i := range c.step.Changes { // what is not known yet has no diff
			c.step.Changes[i].Diff = ""
		}
	case uncheckable:
		c.step.State = plan.Uncheckable
	default:
		c.step.State = plan.Change
	}
	return nil
}

// unchecked says that an operation has no guard.
func unchecked(o op.Op) bool {
	e, ok := o.(op.Exec)
	return ok && len(e.Creates) == 0 && len(e.Unless) == 0 && len(e.Inputs) == 0
}

// after lets an unchanged step provide its values.
func (r *Run) after(ctx context.Context, s *step, c *checked) error {
	if s.task.After == nil || c.skipped || c.scope.pending != "" {
		return nil
	}
	return errors.Join(s.task.After(ctx, c.scope, c.results), c.scope.err)
}

// attempt applies a step, as often as its task says. While it waits to try
// again it holds no slot: what keeps it may be a host that waits for one.
func (r *Run) attempt(ctx context.Context, s *step, g *gate, allowed *declaration, stop context.CancelCauseFunc) outcome {
	t := s.task
	if t.When != nil && !t.When(r.scope(s)) || r.done(s) {
		return outcome{state: event.Skipped}
	}
	delay := t.Retry.Delay
	for try := 1; ; try++ {
		blocked, err := g.enter(ctx)
		if err != nil {
			return outcome{state: event.Cancelled}
		}
		if blocked != "" {
			return outcome{state: event.Skipped, failure: &event.Failure{Reason: "Skipped", Message: "too many hosts failed in this task", CausedBy: blocked}}
		}
		if try == 1 {
			r.emit(stop, event.Event{Type: event.StepStarted}, s)
		}
		o, again := r.try(ctx, s, try, allowed, stop)
		if o.state == event.Failed {
			g.fail(t.ID + " on " + s.hostName())
		}
		g.leave()
		if again == nil {
			return o
		}
		r.emit(stop, event.Event{Type: event.StepRetry, Attempt: try, Message: again.Error()}, s)
		if pause(ctx, delay) != nil {
			return outcome{state: event.Cancelled}
		}
		if t.Retry.Backoff > 0 {
			delay = time.Duration(float64(delay) * t.Retry.Backoff)
		}
	}
}

// try is one attempt. again is why there shall be another.
func (r *Run) try(ctx context.Context, s *step, try int, allowed *declaration, stop context.CancelCauseFunc) (o outcome, again error) {
	t := s.task
	o, err := r.once(ctx, s, allowed, stop)
	switch {
	case err == nil:
		return o, nil
	case ctx.Err() != nil:
		return outcome{state: event.Cancelled, message: err.Error()}, nil
	case try < t.Retry.Attempts && !final(err):
		return outcome{}, err
	case t.IgnoreError:
		return outcome{state: event.Ignored, failure: explain(err)}, nil
	}
	return failed(err), nil
}

// once checks and applies a step within its time.
func (r *Run) once(parent context.Context, s *step, allowed *declaration, stop context.CancelCauseFunc) (outcome, error) {
	t := s.task
	limit := t.Timeout
	if limit == 0 {
		limit = DefaultTimeout
	}
	ctx, cancel := context.WithTimeoutCause(parent, limit, &timeoutError{after: limit})
	defer cancel()
	o := outcome{state: event.Unchanged}
	for {
		c, err := r.check(ctx, s, nil)
		if err != nil {
			return o, because(ctx, err)
		}
		c.scope.emit = func(e event.Event) { r.emit(stop, e, s) }
		results := c.results
		if c.step.State != "" {
			if c.scope.pending != "" {
				return o, fmt.Errorf("%q has no value: its provider did not run", c.scope.pending)
			}
			if err := allowed.permit(c.step); err != nil {
				return o, err
			}
			if results, err = r.perform(ctx, limit, c, stop); err != nil {
				return o, because(ctx, err)
			}
			o.state = event.Changed
			o.changes = eventChanges(c.step.Changes)
		}
		done := true
		if t.Until != nil {
			if done, err = t.Until(ctx, c.scope); err != nil {
				return o, because(ctx, err)
			}
		}
		if done {
			if t.After != nil && !c.skipped {
				err = t.After(ctx, c.scope, results)
			}
			return o, because(ctx, errors.Join(err, c.scope.err))
		}
		if err := pause(ctx, max(t.Retry.Delay, 100*time.Millisecond)); err != nil {
			return o, because(ctx, err)
		}
	}
}

// perform makes the changes of a step.
func (r *Run) perform(ctx context.Context, limit time.Duration, c *checked, stop context.CancelCauseFunc) ([]op.Result, error) {
	s := c.scope.step
	if s.task.Run != nil {
		return nil, s.task.Run.Apply(ctx, c.scope)
	}
	if c.list.Whole() { // a cancelled operation waits for what must not be cut
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
		r.emit(stop, e, s)
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

// because prefers the context's cause, such as a time-out, over what its end
// brought about.
func because(ctx context.Context, err error) error {
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

func (e *timeoutError) Error() string { return fmt.Sprintf("not done after %s", e.after) }

// final says that trying again cannot help.
func final(err error) bool {
	var stale *staleError
	var oe *op.Error
	return errors.As(err, &stale) || errors.As(err, &oe) && slices.Contains([]string{"Fenced", op.ReasonNotServing, op.ReasonUnhealthy}, oe.Reason)
}

// explain puts an error into words for people.
func explain(err error) *event.Failure {
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
		f.Reason, f.Message, f.Detail, f.Remedy = oe.Reason, oe.Message, oe.Detail, remedy(oe.Reason)
	case errors.As(err, &re):
		f.Reason, f.Message, f.Remedy = string(re.Reason), re.Cause, re.Remedy
	case errors.As(err, &stale):
		f.Reason, f.Remedy = "PlanStale", "plan again"
	case errors.As(err, &list) && len(list) == 1:
		f.Reason, f.Message, f.Remedy = list[0].ID, list[0].Message, list[0].Hint
	case errors.As(err, &list) && len(list) > 0:
		f.Reason, f.Remedy = list[0].ID, list[0].Hint
	}
	return f
}

// remedy is what to do about failures of operations that have the same one
// wherever they occur.
func remedy(reason string) string {
	switch reason {
	case op.IDEtcdQuorum:
		return "bring the members back that do not answer, or take them off first, each by itself: slipway delete node NAME --forget"
	case op.IDEtcdNameTaken:
		return "take that one off first: slipway delete node NAME; or give the new host another name"
	case op.IDAuthorityNoKey:
		return "put the key back, from a backup or from another host that has it; or go on with the other hosts: --ignore-errors"
	case op.IDAuthorityExpired:
		return "what it signs is worth nothing any more, and the cluster's and etcd's are exchanged while they last: docs/guide/certificates.md"
	case op.IDCertificateForeign:
		return "put the certificate or the authority back that was there before, or renew it where it was made; or go on with the other hosts: --ignore-errors"
	case op.IDCertificateRequest:
		return "look at the key on that host, move it away if it is weak or foreign, then resume"
	case "DiskFull":
		return "make room on the host, or mount a larger disk there, then resume"
	case "BlobCorrupt":
		return "find out with 'slipway bundle verify', copy or build the bundle again, then resume"
	case op.ReasonEtcdDataLost:
		return "mount the disk that they are on; if they are lost, delete the node and add it again"
	case op.ReasonNotServing:
		return "see why with 'journalctl -u kubelet' there, then resume; if the file is the cause, correct and apply it; one that cannot be mended is taken off while others serve: slipway delete node NAME (--forget if its host does not answer)"
	case op.ReasonUnhealthy:
		return "see more with 'journalctl' there; correct the file, and apply it"
	case op.ReasonEtcdRemoved:
		return "put the host back as it was first: slipway delete node NAME; then add it again"
	case op.ReasonEtcdBusy:
		return "resume when that host is up: it is finished first; if it is lost for good, take it off, and with it what etcd knows of it: slipway delete node NAME --forget"
	case op.IDLedgerLost:
		return "put it back from a backup, or clean the host by hand or install it anew, then 'slipway delete cluster NAME --forget'"
	}
	return ""
}

// A declaration is what a plan lets a step do.
type declaration struct {
	any     bool
	changes map[string]bool
}

func declare(steps []plan.Step) map[string]*declaration {
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

// permit refuses a step that would do more than was declared. Waits pass: they
// change nothing, and what is waited for may have gone down by what an earlier
// step was declared to do.
func (d *declaration) permit(s plan.Step) error {
	for _, c := range s.Changes {
		if c.Kind == op.KindWait || c.Kind == op.KindServing {
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
	return "would change " + e.what + ", which the plan does not say: the host has changed since"
}
