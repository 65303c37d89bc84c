package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
)

// A Run is one pass over the hosts: a check or an apply. Its fields are set before the
// pass and do not change during it.
type Run struct {
	Hosts     []*Host
	Operation string
	Cluster   string
	Fence     uint64
	// IgnoreErrors lets dependent tasks continue with the remaining hosts, except tasks
	// with NeedsAll.
	IgnoreErrors bool
	// Done lists the Once tasks that succeeded earlier, as "task@host". An entry counts
	// only on a host that still has a ledger.
	Done map[string]bool
	// Emit records an event. An error stops the run, because an action that cannot be
	// recorded must not happen.
	Emit func(event.Event) error
	// Sync, if not nil, returns when all emitted events are durable. Each step calls it
	// before it changes something, so that the start of a change is never lost. An error
	// stops the run.
	Sync func() error

	values values
}

// checkTime bounds the check of one step in a plan. A check changes nothing.
const checkTime = 2 * time.Minute

// A Failure is a step that failed itself, not because of another step.
type Failure struct {
	Host  string
	Task  string
	Title string
	event.Failure
}

// A Result is the outcome of a run.
type Result struct {
	Steps    []plan.Step // Check: the steps that would be done
	Failures []Failure   // in the pipeline's order
	Changed  int         // Apply: the number of steps that changed something
	// Skipped lists the hosts with steps that were not tried because a required step
	// failed.
	Skipped []string
	// Cancelled reports whether the context ended before the run.
	Cancelled bool
	// Paused reports whether the run stopped after a wave, as its module requests.
	Paused bool
}

// Check returns the steps that a pipeline would do. It changes nothing. It returns an
// error for an invalid pipeline; hosts that cannot be checked are Failures.
func (r *Run) Check(ctx context.Context, p Pipeline) (*Result, error) {
	prog, err := compileProgram(p, r.Hosts, checking, nil)
	if err != nil {
		return nil, err
	}
	w := newWalk(r, prog)
	found := make([]*plan.Step, prog.Len())
	dirty := newDirty()
	w.do = func(ctx context.Context, n int, s *step) outcome {
		ctx, cancel := context.WithTimeoutCause(ctx, checkTime, &timeoutError{after: checkTime})
		defer cancel()
		c, err := r.checkStep(ctx, s, dirty)
		if err != nil {
			return failedOutcome(preferCause(ctx, err))
		}
		if c.step.State != "" {
			c.step.After = prog.providers[c.step.After]
			found[n] = &c.step
			return outcome{state: event.Changed}
		}
		if err := r.provideUnchanged(ctx, s, c); err != nil {
			return failedOutcome(err)
		}
		return outcome{state: event.Unchanged}
	}
	if err := w.walkGraph(ctx); err != nil {
		return nil, err
	}
	res := w.makeResult()
	for _, n := range prog.order {
		if found[n] != nil {
			res.Steps = append(res.Steps, *found[n])
		}
	}
	return res, nil
}

// Apply runs a pipeline. Each step is checked again immediately before, and may do only
// what the plan declares for it.
func (r *Run) Apply(ctx context.Context, p Pipeline, planned []plan.Step) (*Result, error) {
	declared := declareSteps(planned)
	prog, err := compileProgram(p, r.Hosts, applying, declared)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := newWalk(r, prog)
	gates, err := newGates(prog)
	if err != nil {
		return nil, err
	}
	w.idle = func(s *step) bool { return declared[stepKey(s)] == nil }
	w.do = func(ctx context.Context, n int, s *step) outcome {
		return r.attemptStep(ctx, s, gates[s.task.ID], declared[stepKey(s)], stop)
	}
	w.finished = func(n int, s *step, o outcome) {
		r.emitEvent(stop,
			event.Event{
				Type: event.StepFinished, After: w.after[n], Outcome: o.state, Failure: o.failure,
				Changes: o.changes, Message: o.message,
			}, s)
	}
	if err := w.walkGraph(ctx); err != nil {
		return nil, err
	}
	res := w.makeResult()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return res, cause
	}
	return res, nil
}

// emitEvent records an event of a step. If the event cannot be recorded, the run stops.
func (r *Run) emitEvent(stop context.CancelCauseFunc, e event.Event, s *step) {
	e.Operation, e.Cluster = r.Operation, r.Cluster
	if s != nil {
		e.Module, e.Task, e.Title, e.Host = s.module, s.task.ID, s.task.Title, s.hostName()
	}
	if r.Emit == nil {
		return
	}
	if err := r.Emit(e); err != nil {
		stop(fmt.Errorf("recording the event: %w", err))
	}
}

// syncEvents waits until the emitted events are durable.
func (r *Run) syncEvents(stop context.CancelCauseFunc) error {
	if r.Sync == nil {
		return nil
	}
	err := r.Sync()
	if err != nil {
		err = fmt.Errorf("recording the start of the step: %w", err)
		stop(err)
	}
	return err
}

// stepKey returns the name of a step in Done and in the declared changes.
func stepKey(s *step) string { return s.task.ID + "@" + s.hostName() }

// outcome is the result of a step.
type outcome struct {
	state   event.Outcome
	failure *event.Failure
	changes []event.Change
	message string
	// blocks reports whether dependent steps cannot run.
	blocks bool
}

func failedOutcome(err error) outcome {
	return outcome{state: event.Failed, failure: ExplainFailure(err), blocks: true}
}

// walk is a pass over a program. It decides which steps may run.
type walk struct {
	run      *Run
	prog     *program
	do       func(context.Context, int, *step) outcome
	finished func(int, *step, outcome)
	// idle, if not nil, reports whether nothing is planned for a step.
	idle func(*step) bool

	// after holds, by node, the key of the step whose end let the node begin. An entry is
	// written before its node runs and does not change afterwards.
	after []string

	mu       sync.Mutex
	outcomes []outcome
	ended    []int // by node: how many nodes had ended when it did
	count    int
}

func newWalk(r *Run, p *program) *walk {
	return &walk{run: r, prog: p, after: make([]string, p.Len()), outcomes: make([]outcome, p.Len()), ended: make([]int, p.Len())}
}

func (w *walk) walkGraph(ctx context.Context) error {
	return w.prog.Walk(ctx, func(ctx context.Context, n int) {
		s := w.prog.steps[n]
		w.after[n] = w.lastPredecessor(n)
		if s == nil {
			w.setOutcome(n, w.joinOutcomes(n))
			return
		}
		o, stopped := w.checkPredecessors(n)
		switch {
		case stopped:
		case ctx.Err() != nil:
			o = outcome{state: event.Cancelled, blocks: true}
		default:
			o = w.do(ctx, n, s)
			o.blocks = o.state == event.Failed || o.state == event.Cancelled || o.state == event.Skipped && o.failure != nil
		}
		w.setOutcome(n, o)
		if w.finished != nil {
			w.finished(n, s, o)
		}
	})
}

func (w *walk) setOutcome(n int, o outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	w.outcomes[n], w.ended[n] = o, w.count
}

// lastPredecessor returns the key of the predecessor of a node that ended last; "" if there is none.
func (w *walk) lastPredecessor(n int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	latest := -1
	for _, p := range w.prog.Predecessors(n) {
		if latest < 0 || w.ended[p] > w.ended[latest] {
			latest = p
		}
	}
	switch {
	case latest < 0:
		return ""
	case w.prog.steps[latest] == nil:
		return w.after[latest]
	}
	return stepKey(w.prog.steps[latest])
}

func (w *walk) outcomeOf(n int) outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.outcomes[n]
}

// checkPredecessors checks the predecessors of a step: the first one that blocks causes the step to
// be skipped. A step that has nothing to do and waits for all hosts blocks nothing if
// errors are ignored.
func (w *walk) checkPredecessors(n int) (outcome, bool) {
	idle := false
	for _, p := range w.prog.Predecessors(n) {
		o := w.outcomeOf(p)
		if !o.blocks {
			continue
		}
		if w.run.IgnoreErrors && w.prog.strict[p] && w.idle != nil && w.idle(w.prog.steps[n]) {
			idle = true
			continue
		}
		if o.state == event.Cancelled || o.state == event.Paused {
			return outcome{state: o.state, blocks: true}, true
		}
		return outcome{state: event.Skipped, blocks: true, failure: &event.Failure{
			Reason: "Skipped", Message: "a required step failed", CausedBy: w.failedStepOf(p, o),
		}}, true
	}
	return outcome{state: event.Skipped}, idle
}

// failedStepOf returns the key of the failed step that blocks a node.
func (w *walk) failedStepOf(n int, o outcome) string {
	if o.failure != nil && o.failure.CausedBy != "" {
		return o.failure.CausedBy
	}
	if s := w.prog.steps[n]; s != nil {
		return stepKey(s)
	}
	return ""
}

// joinOutcomes returns the outcome of a whole task. Without IgnoreErrors, one failed host blocks
// dependent steps. With it, only the failure of all hosts does, unless the joint is
// strict.
func (w *walk) joinOutcomes(n int) outcome {
	var first *outcome
	var cause string
	ok, changed := 0, false
	for _, p := range w.prog.Predecessors(n) {
		o := w.outcomeOf(p)
		changed = changed || o.state == event.Changed
		if !o.blocks {
			ok++
			continue
		}
		if first == nil {
			first, cause = &o, w.failedStepOf(p, o)
		}
	}
	if first == nil && w.prog.pauses[n] && changed {
		return outcome{state: event.Paused, blocks: true}
	}
	if first == nil || w.run.IgnoreErrors && ok > 0 && !w.prog.strict[n] {
		return outcome{state: event.Succeeded}
	}
	if first.state == event.Cancelled || first.state == event.Paused {
		return *first
	}
	return outcome{state: event.Failed, blocks: true, failure: &event.Failure{Reason: "Skipped", CausedBy: cause}}
}

func (w *walk) makeResult() *Result {
	res := &Result{}
	for _, n := range w.prog.order {
		o, s := w.outcomes[n], w.prog.steps[n]
		switch o.state {
		case event.Failed:
			res.Failures = append(res.Failures, Failure{Host: s.hostName(), Task: s.task.ID, Title: s.task.Title, Failure: *o.failure})
		case event.Changed:
			res.Changed++
		case event.Skipped:
			if host := s.hostName(); o.blocks && !slices.Contains(res.Skipped, host) {
				res.Skipped = append(res.Skipped, host)
			}
		case event.Cancelled:
			res.Cancelled = true
		case event.Paused:
			res.Paused = true
		}
	}
	return res
}

// A gate bounds how many hosts run a task at once, and stops the task after too many
// failures.
type gate struct {
	slots chan struct{} // nil: no bound
	max   int           // failures allowed; 0: no bound

	mu     sync.Mutex
	failed int
	first  string
}

func newGates(p *program) (map[string]*gate, error) {
	hosts := map[string]int{}
	tasks := map[string]*Task{}
	for _, n := range p.order {
		t := p.steps[n].task
		hosts[t.ID]++
		tasks[t.ID] = t
	}
	gates := map[string]*gate{}
	for id, t := range tasks {
		g := &gate{}
		parallel, err := ParseBound(t.Rollout.MaxParallel, hosts[id])
		if err != nil {
			return nil, err
		}
		if parallel > 0 {
			g.slots = make(chan struct{}, parallel)
		}
		if g.max, err = ParseBound(t.Rollout.MaxUnavailable, hosts[id]); err != nil {
			return nil, err
		}
		gates[id] = g
	}
	return gates, nil
}

// waitForSlot waits for a slot. blocked is the failure that closed the gate.
func (g *gate) waitForSlot(ctx context.Context) (blocked string, err error) {
	if g.slots != nil {
		select {
		case g.slots <- struct{}{}:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.max > 0 && g.failed >= g.max {
		g.releaseSlot()
		return g.first, nil
	}
	return "", nil
}

// releaseSlot releases the slot.
func (g *gate) releaseSlot() {
	if g.slots != nil {
		<-g.slots
	}
}

// countFailure counts a host that failed. It must be called before leave, so that the next host
// sees the failure.
func (g *gate) countFailure(by string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed++; g.failed == 1 {
		g.first = by
	}
}

// pauseFor waits, unless ctx ends first.
func pauseFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
