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
	root       failure // the first failure that was not caused by another
	steps      []*step
	byTask     map[string]*step
	failed     int // the number of failures so far
}

// failure is one failure of a step; seq orders the failures of all steps.
type failure struct {
	v1alpha1.StepFailure
	seq int
}

// step is one task over its hosts. When a resume repeats it on a host, the new outcome
// replaces the earlier one.
type step struct {
	module, task, title string
	start, end          time.Time
	running             map[string]bool
	outcomes            map[string]event.Outcome
	failures            map[string]failure // by host
}

var _ event.Sink = (*Reducer)(nil)

// Emit processes the next event.
func (r *Reducer) Emit(e event.Event) {
	switch e.Type {
	case event.OperationStarted:
		r.state, r.message, r.root, r.end = v1alpha1.OperationRunning, "", failure{}, time.Time{}
		if r.start.IsZero() {
			r.start = e.Time
		}
		for _, s := range r.steps {
			clear(s.running) // steps of the interrupted run
		}
	case event.OperationFinished:
		r.state, r.end = finalState(e.Outcome), e.Time
		r.message = e.Message
		if r.message == "" && r.state != v1alpha1.OperationSucceeded {
			r.message = r.root.Message
		}
	case event.StepStarted:
		s := r.stepOf(e)
		s.running[e.Host] = true
	case event.StepFinished:
		r.stepFinished(e)
	}
}

func (r *Reducer) stepFinished(e event.Event) {
	s := r.stepOf(e)
	delete(s.running, e.Host)
	s.outcomes[e.Host] = e.Outcome
	s.end = e.Time
	delete(s.failures, e.Host)
	if e.Failure == nil || (e.Outcome != event.Failed && e.Outcome != event.Ignored) {
		return
	}
	f := failure{v1alpha1.StepFailure{Task: e.Task, Host: e.Host, Reason: e.Failure.Reason, Message: e.Failure.Message}, r.failed}
	r.failed++
	if r.root.Message == "" && e.Outcome == event.Failed {
		r.root = f
		if e.Host != "" {
			r.root.Message = e.Host + ": " + r.root.Message
		}
		if s.title != "" {
			r.root.Message = s.title + ": " + r.root.Message
		}
	}
	f.Message = LimitMessage(f.Message, v1alpha1.MaxFailureMessage)
	s.failures[e.Host] = f
}

func (r *Reducer) stepOf(e event.Event) *step {
	s := r.byTask[e.Task]
	if s == nil {
		s = &step{
			module: e.Module, task: e.Task, title: e.Title, start: e.Time,
			running: map[string]bool{}, outcomes: map[string]event.Outcome{}, failures: map[string]failure{},
		}
		if r.byTask == nil {
			r.byTask = map[string]*step{}
		}
		r.byTask[e.Task] = s
		r.steps = append(r.steps, s)
	}
	if s.title == "" {
		s.title = e.Title
	}
	return s
}

// Status returns the current status without the plan and the number of the attempt, which
// the events do not have. Its size grows with the tasks, not with the hosts.
func (r *Reducer) Status() v1alpha1.OperationStatus {
	out := v1alpha1.OperationStatus{
		State:     cmp.Or(r.state, v1alpha1.OperationPending),
		StartTime: apiTime(r.start),
		EndTime:   apiTime(r.end),
		Message:   LimitMessage(r.message, v1alpha1.MaxStatusMessage),
	}
	if out.State == v1alpha1.OperationFailed {
		out.Reason = r.root.Reason
	}
	var failures []failure
	for _, s := range r.steps {
		out.Steps = append(out.Steps, s.stepStatus())
		failures = slices.AppendSeq(failures, maps.Values(s.failures))
	}
	slices.SortFunc(failures, func(a, b failure) int { return a.seq - b.seq })
	for _, f := range failures[:min(len(failures), v1alpha1.MaxFailures)] {
		out.Failures = append(out.Failures, f.StepFailure)
	}
	return out
}

func (s *step) stepStatus() v1alpha1.OperationStep {
	out := v1alpha1.OperationStep{Module: s.module, Task: s.task, Title: s.title, StartTime: apiTime(s.start)}
	if len(s.running) == 0 {
		out.EndTime = apiTime(s.end)
	}
	for _, o := range s.outcomes {
		switch o {
		case event.Unchanged:
			out.Hosts.Done++
		case event.Changed:
			out.Hosts.Changed++
		case event.Failed, event.Ignored:
			out.Hosts.Failed++
		default:
			out.Hosts.Skipped++
		}
	}
	return out
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
