// Package status makes an operation's status from its events, and says how a
// cluster's phase may move. All of it is pure: the same events give the same
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

// maxFailures is how many failures a step of a status lists; the journal has
// all of them.
const maxFailures = 10

// Reduce answers the status after events, in order.
func Reduce(events iter.Seq[event.Event]) v1alpha1.OperationStatus {
	var r Reducer
	for e := range events {
		r.Emit(e)
	}
	return r.Status()
}

// A Reducer is Reduce, one event at a time. Its zero value is ready. It is an
// event.Sink.
type Reducer struct {
	phase      v1alpha1.OperationPhase
	start, end time.Time
	message    string
	root       string // the first failure that no other caused
	steps      []*step
	byTask     map[string]*step
}

// step is one task over its hosts. What a resume does again replaces what was
// known of a host.
type step struct {
	task, title string
	start, end  time.Time
	running     map[string]bool
	outcomes    map[string]event.Outcome
	failures    []v1alpha1.StepFailure
}

var _ event.Sink = (*Reducer)(nil)

// Emit takes the next event.
func (r *Reducer) Emit(e event.Event) {
	switch e.Type {
	case event.OperationStarted:
		r.phase, r.message, r.root, r.end = v1alpha1.OperationRunning, "", "", time.Time{}
		if r.start.IsZero() {
			r.start = e.Time
		}
		for _, s := range r.steps {
			clear(s.running) // what ran when the last run was cut off
		}
	case event.OperationFinished:
		r.phase, r.end = finalPhase(e.Outcome), e.Time
		r.message = e.Message
		if r.message == "" && r.phase != v1alpha1.OperationSucceeded {
			r.message = r.root
		}
	case event.StepStarted:
		s := r.step(e)
		s.running[e.Host] = true
	case event.StepFinished:
		r.stepFinished(e)
	}
}

func (r *Reducer) stepFinished(e event.Event) {
	s := r.step(e)
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

func (r *Reducer) step(e event.Event) *step {
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

// Status answers the status so far. Its size grows with the tasks, not with
// the hosts.
func (r *Reducer) Status() v1alpha1.OperationStatus {
	out := v1alpha1.OperationStatus{
		Phase:     r.phase,
		StartTime: stamp(r.start),
		EndTime:   stamp(r.end),
		Message:   r.message,
	}
	if out.Phase == "" {
		out.Phase = v1alpha1.OperationPending
	}
	for _, s := range r.steps {
		out.Steps = append(out.Steps, s.status())
	}
	return out
}

func (s *step) status() v1alpha1.OperationStep {
	out := v1alpha1.OperationStep{Task: s.task, Title: s.title, StartTime: stamp(s.start)}
	if len(s.running) == 0 {
		out.EndTime = stamp(s.end)
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

// finalPhase is an operation's phase at its end. An operation that left hosts
// behind has failed: there is something to resume.
func finalPhase(o event.Outcome) v1alpha1.OperationPhase {
	switch o {
	case event.Succeeded:
		return v1alpha1.OperationSucceeded
	case event.Cancelled, event.Paused:
		return v1alpha1.OperationCancelled
	}
	return v1alpha1.OperationFailed
}

// stamp is nil for no time. Seconds are what the API's times hold.
func stamp(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}
