// Package status computes the status of an operation from its events, and defines the
// legal transitions of the phase of a cluster. It is pure: the same events give the same
// status in a file, in an API object and on a screen.
package status

import (
	"iter"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

// maxFailures is how many failures a step of a status lists; the journal has all of them.
const maxFailures = 10

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
	phase      v1alpha1.OperationPhase
	start, end time.Time
	message    string
	root       string // the first failure that was not caused by another
	steps      []*step
	byTask     map[string]*step
}

// step is one task over its hosts. When a resume repeats it on a host, the new outcome
// replaces the earlier one.
type step struct {
	task, title string
	start, end  time.Time
	running     map[string]bool
	outcomes    map[string]event.Outcome
	failures    []v1alpha1.StepFailure
}

var _ event.Sink = (*Reducer)(nil)

// Emit processes the next event.
func (r *Reducer) Emit(e event.Event) {
	switch e.Type {
	case event.OperationStarted:
		r.phase, r.message, r.root, r.end = v1alpha1.OperationRunning, "", "", time.Time{}
		if r.start.IsZero() {
			r.start = e.Time
		}
		for _, s := range r.steps {
			clear(s.running) // steps of the interrupted run
		}
	case event.OperationFinished:
		r.phase, r.end = finalPhase(e.Outcome), e.Time
		r.message = e.Message
		if r.message == "" && r.phase != v1alpha1.OperationSucceeded {
			r.message = r.root
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
	s.failures = slices.DeleteFunc(s.failures, func(f v1alpha1.StepFailure) bool { return f.Host == e.Host })
	if e.Failure == nil || (e.Outcome != event.Failed && e.Outcome != event.Ignored) {
		return
	}
	s.failures = append(s.failures, v1alpha1.StepFailure{
		Host: e.Host, Reason: e.Failure.Reason, Message: e.Failure.Message,
	})
	if r.root == "" && e.Outcome == event.Failed {
		r.root = e.Failure.Message
		if e.Host != "" {
			r.root = e.Host + ": " + r.root
		}
		if s.title != "" {
			r.root = s.title + ": " + r.root
		}
	}
}

func (r *Reducer) stepOf(e event.Event) *step {
	s := r.byTask[e.Task]
	if s == nil {
		s = &step{
			task: e.Task, title: e.Title, start: e.Time,
			running: map[string]bool{}, outcomes: map[string]event.Outcome{},
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

// Status returns the current status. Its size grows with the tasks, not with the hosts.
func (r *Reducer) Status() v1alpha1.OperationStatus {
	out := v1alpha1.OperationStatus{
		Phase:     r.phase,
		StartTime: apiTime(r.start),
		EndTime:   apiTime(r.end),
		Message:   r.message,
	}
	if out.Phase == "" {
		out.Phase = v1alpha1.OperationPending
	}
	for _, s := range r.steps {
		out.Steps = append(out.Steps, s.stepStatus())
	}
	return out
}

func (s *step) stepStatus() v1alpha1.OperationStep {
	out := v1alpha1.OperationStep{Task: s.task, Title: s.title, StartTime: apiTime(s.start)}
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
	if n := min(len(s.failures), maxFailures); n > 0 {
		out.Failures = slices.Clone(s.failures[:n])
	}
	return out
}

// finalPhase returns the phase of an operation that has ended. An operation that left
// hosts unfinished has failed and can be resumed.
func finalPhase(o event.Outcome) v1alpha1.OperationPhase {
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
