// Package status computes the status of an operation from its events, and defines the
// legal transitions of the phase of a cluster. It is pure: the same events give the same
// status in a file, in an API object and on a screen.
package status

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag/errorcode"
	"slipway.dev/slipway/internal/event"
)

// ReduceEvents returns the status after events, in order.
func ReduceEvents(events iter.Seq[event.Event]) v1alpha1.OperationStatus {
	var r Reducer
	for e := range events {
		r.Emit(e)
	}
	return r.Status()
}

// A Reducer reduces one event at a time. Its zero value is ready to use. It is an
// event.Sink.
type Reducer struct {
	state      v1alpha1.OperationState
	start, end time.Time
	message    string
	root       failure // the first failure of this attempt that was not caused by another
	cause      failure // the failure that ended the operation
	steps      []*step
	byTask     map[string]*step
	hosts      map[string]*host // without the manager
	failed     int              // the number of failures so far
}

// step is one task over its hosts. When a resume repeats it on a host, the new outcome
// replaces the earlier one.
type step struct {
	module, task, title string
	start, end          time.Time
	counts              v1alpha1.HostCounts
	running             int // hosts
	hosts               map[string]*stepHost
	failures            map[string]failure // by host
}

// stepHost is one task on one host.
type stepHost struct {
	outcome event.Outcome // "" before the first end
	started time.Time     // zero if the task is not running
}

// host is one host over its tasks.
type host struct {
	counts  v1alpha1.HostCounts // of its tasks
	running int                 // tasks
	busy    time.Duration       // in all attempts
}

// failure is one failure of a step.
type failure struct {
	v1alpha1.StepFailure
	title string
	code  v1alpha1.ErrorCode // "" in journals of earlier versions
	rank  rank
	seq   int // in the order of all failures
}

// rank orders the failures by their importance.
type rank int

const (
	rootCause rank = iota
	ignored
	consequence
)

var _ event.Sink = (*Reducer)(nil)

// Emit processes the next event.
func (r *Reducer) Emit(e event.Event) {
	switch e.Type {
	case event.OperationStarted:
		r.operationStarted(e)
	case event.OperationFinished:
		r.operationFinished(e)
	case event.StepStarted:
		r.stepStarted(e)
	case event.StepFinished:
		r.stepFinished(e)
	}
}

func (r *Reducer) operationStarted(e event.Event) {
	r.state, r.message, r.root, r.cause, r.end = v1alpha1.OperationRunning, "", failure{}, failure{}, time.Time{}
	if r.start.IsZero() {
		r.start = e.Time
	}
	for _, h := range r.hosts {
		h.running = 0
	}
	r.steps = slices.DeleteFunc(r.steps, func(s *step) bool {
		r.forgetFailures(s)
		if s.counts.Total == 0 {
			delete(r.byTask, s.task)
		}
		return s.counts.Total == 0
	})
}

// forgetFailures removes what the interrupted run left of a step: this run repeats it, if it is
// still needed.
func (r *Reducer) forgetFailures(s *step) {
	s.running = 0
	clear(s.failures)
	for name, on := range s.hosts {
		on.started = time.Time{}
		if on.outcome != event.Failed && on.outcome != event.Ignored {
			continue
		}
		count(&s.counts, on.outcome, -1)
		if h := r.hosts[name]; h != nil {
			count(&h.counts, on.outcome, -1)
		}
		s.counts.Total--
		delete(s.hosts, name)
	}
}

// operationFinished saves how the operation ended. The event has the failure that ended it,
// except in journals of earlier versions: there it is the first failure.
func (r *Reducer) operationFinished(e event.Event) {
	r.state, r.end, r.message, r.cause = finalState(e.Outcome), e.Time, e.Message, r.root
	if e.Failure != nil && (e.Failure.Code != "" || r.root == failure{}) {
		r.cause = newFailure(e, e.Title)
	}
}

func (r *Reducer) stepStarted(e event.Event) {
	s, on, h := r.placesOf(e)
	if on.started.IsZero() {
		s.running++
		h.running++
	}
	on.started = e.Time
}

func (r *Reducer) stepFinished(e event.Event) {
	s, on, h := r.placesOf(e)
	if !on.started.IsZero() {
		s.running--
		h.running--
		h.busy += max(0, e.Time.Sub(on.started))
	}
	count(&s.counts, on.outcome, -1)
	count(&h.counts, on.outcome, -1)
	count(&s.counts, e.Outcome, 1)
	count(&h.counts, e.Outcome, 1)
	s.end = e.Time
	*on = stepHost{outcome: e.Outcome}
	delete(s.failures, e.Host)
	if e.Outcome != event.Failed && e.Outcome != event.Ignored {
		return
	}
	f := newFailure(e, s.title)
	f.seq = r.failed
	r.failed++
	if f.rank == rootCause && r.root == (failure{}) {
		r.root = f
	}
	f.Message = LimitMessage(f.Message, v1alpha1.MaxFailureMessage)
	s.failures[e.Host] = f
}

// placesOf returns the step, the host, and the step on the host of an event.
func (r *Reducer) placesOf(e event.Event) (*step, *stepHost, *host) {
	s := r.byTask[e.Task]
	if s == nil {
		s = &step{module: e.Module, task: e.Task, start: e.Time, hosts: map[string]*stepHost{}, failures: map[string]failure{}}
		if r.byTask == nil {
			r.byTask, r.hosts = map[string]*step{}, map[string]*host{}
		}
		r.byTask[e.Task] = s
		r.steps = append(r.steps, s)
	}
	s.title = cmp.Or(s.title, e.Title)
	on := s.hosts[e.Host]
	if on == nil {
		on = &stepHost{}
		s.hosts[e.Host] = on
		s.counts.Total++
	}
	if e.Host == "" {
		return s, on, &host{} // the manager is not a host
	}
	h := r.hosts[e.Host]
	if h == nil {
		h = &host{}
		r.hosts[e.Host] = h
	}
	return s, on, h
}

// newFailure returns the failure of an event.
func newFailure(e event.Event, title string) failure {
	from := cmp.Or(e.Failure, &event.Failure{Reason: "Error"})
	f := failure{
		StepFailure: v1alpha1.StepFailure{
			Task: LimitMessage(e.Task, maxTask), Host: LimitMessage(e.Host, maxHost), Reason: LimitMessage(from.Reason, maxReason),
			Message: LimitMessage(from.Message, v1alpha1.MaxStatusMessage),
		},
		title: title, code: from.Code,
	}
	switch {
	case from.CausedBy != "":
		f.rank = consequence
	case e.Outcome == event.Ignored:
		f.rank = ignored
	}
	return f
}

// text returns the failure in one line, for people.
func (f failure) text() string {
	text := f.Message
	if f.Host != "" {
		text = f.Host + ": " + text
	}
	if f.title != "" {
		text = f.title + ": " + text
	}
	return text
}

// count adds n hosts with an outcome; none if the outcome is "".
func count(c *v1alpha1.HostCounts, o event.Outcome, n int) {
	switch o {
	case "":
	case event.Unchanged:
		c.Done += n
	case event.Changed:
		c.Changed += n
	case event.Failed:
		c.Failed += n
	case event.Ignored:
		c.Ignored += n
	default:
		c.Skipped += n
	}
}

// Status returns the current status without the plan, the executor, the attempt and the
// journal, which the events do not have. With these it has at most v1alpha1.MaxStatusSize
// bytes. It does not depend on earlier calls.
func (r *Reducer) Status() v1alpha1.OperationStatus {
	failures := r.sortFailures()
	out := r.totals(failures)
	for _, d := range details {
		r.list(&out, failures, d)
		if sizeOf(out) <= room {
			return out
		}
	}
	r.cut(&out)
	return out
}

// totals returns the status without failures and steps.
func (r *Reducer) totals(failures []failure) v1alpha1.OperationStatus {
	out := v1alpha1.OperationStatus{
		State:     cmp.Or(r.state, v1alpha1.OperationPending),
		StartTime: apiTime(r.start),
		EndTime:   apiTime(r.end),
		Message:   r.message,
		Hosts:     r.listHosts(failures),

		FailureCount: len(failures),
	}
	for _, h := range r.hosts {
		out.HostCounts.Total++
		count(&out.HostCounts, h.outcome(), 1)
	}
	if out.State == v1alpha1.OperationFailed {
		out.Reason = r.cause.Reason
		out.ErrorCode = cmp.Or(r.cause.code, errorcode.Of(r.cause.Reason, nil))
	}
	if out.Message == "" && r.cause != (failure{}) && out.State != v1alpha1.OperationSucceeded {
		out.Message = r.cause.text()
	}
	out.Message = LimitMessage(out.Message, v1alpha1.MaxStatusMessage)
	return out
}

// sortFailures returns all failures, the most important ones first.
func (r *Reducer) sortFailures() []failure {
	var failures []failure
	for _, s := range r.steps {
		failures = slices.AppendSeq(failures, maps.Values(s.failures))
	}
	slices.SortFunc(failures, func(a, b failure) int { return cmp.Or(cmp.Compare(a.rank, b.rank), a.seq-b.seq) })
	return failures
}

// listHosts returns the hosts with failures, in the order of their failures, then the slowest
// hosts.
func (r *Reducer) listHosts(failures []failure) []v1alpha1.OperationHost {
	first := map[string]int{} // failure of each host, from 1
	for i, f := range failures {
		if first[f.Host] == 0 {
			first[f.Host] = i + 1
		}
	}
	names := slices.Collect(maps.Keys(r.hosts))
	slices.SortFunc(names, func(a, b string) int {
		if x, y := first[a], first[b]; (x == 0) != (y == 0) {
			return cmp.Compare(y, x)
		}
		return cmp.Or(cmp.Compare(first[a], first[b]), cmp.Compare(r.hosts[b].busy, r.hosts[a].busy), cmp.Compare(a, b))
	})
	var out []v1alpha1.OperationHost
	for _, name := range names[:min(len(names), v1alpha1.MaxOperationHosts)] {
		h := r.hosts[name]
		out = append(out, v1alpha1.OperationHost{
			Name: LimitMessage(name, maxHost), State: h.state(), Seconds: int64(h.busy / time.Second),
		})
	}
	return out
}

// outcome returns the worst outcome of the tasks, "" if none has ended.
func (h *host) outcome() event.Outcome {
	switch c := h.counts; {
	case c.Failed > 0:
		return event.Failed
	case c.Ignored > 0:
		return event.Ignored
	case c.Changed > 0:
		return event.Changed
	case c.Done > 0:
		return event.Unchanged
	case c.Skipped > 0:
		return event.Skipped
	}
	return ""
}

func (h *host) state() v1alpha1.HostState {
	outcome := h.outcome()
	switch {
	case outcome == event.Failed:
		return v1alpha1.HostFailed
	case h.running > 0:
		return v1alpha1.HostRunning
	case outcome == event.Ignored:
		return v1alpha1.HostIgnored
	case outcome == event.Changed:
		return v1alpha1.HostChanged
	case outcome == event.Unchanged:
		return v1alpha1.HostDone
	}
	return v1alpha1.HostSkipped
}

// LimitMessage returns a message of at most limit bytes. A longer one ends with an ellipsis.
func LimitMessage(message string, limit int) string {
	const end = "…"
	if len(message) <= limit {
		return message
	}
	cut := limit - len(end)
	for cut > 0 && !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + end
}

// finalState returns the state of an operation that has ended. An operation that left
// hosts unfinished has failed and can be resumed.
func finalState(o event.Outcome) v1alpha1.OperationState {
	switch o {
	case event.Succeeded:
		return v1alpha1.OperationSucceeded
	case event.Cancelled, event.Paused:
		return v1alpha1.OperationCancelled
	}
	return v1alpha1.OperationFailed
}

// apiTime returns nil for the zero time. The times of the API have a resolution of seconds.
func apiTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}
