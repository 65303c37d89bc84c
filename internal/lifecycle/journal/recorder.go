// Package journal writes the events of an operation to its journal.
package journal

import (
	"bytes"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"slipway.dev/slipway/internal/event"
)

const (
	// outputShare is how much of a step's output on one host is saved from its
	// beginning, and how much from its end, in bytes.
	outputShare = 512 << 10
	// pieceCost is the approximate size of a piece of output in the journal besides its
	// text: a program may write byte by byte.
	pieceCost = 256
)

// A Recorder sets the number and time of events, writes them to the journal and passes them
// on, one at a time. It passes on all output of programs, but saves only the beginning
// and the end, so that no program can fill the disk of the state directory.
type Recorder struct {
	now     func() time.Time
	journal Appender
	sinks   []event.Sink

	mu      sync.Mutex
	seq     int64 // of the last event
	outputs map[stepOn]*outputs
}

// An Appender is the journal of an operation.
type Appender interface {
	// Append adds an event, without waiting until it is durable.
	Append(e event.Event) error
	// Sync returns when all events that were appended before are durable.
	Sync() error
}

// NewRecorder returns a recorder that continues a journal after the event with number seq.
func NewRecorder(j Appender, seq int64, now func() time.Time, sinks []event.Sink) *Recorder {
	return &Recorder{now: now, journal: j, sinks: sinks, seq: seq, outputs: map[stepOn]*outputs{}}
}

// stepOn is a step on one host.
type stepOn struct{ task, host string }

// outputs is the output of a step's programs over all its attempts.
type outputs struct {
	recorded int  // cost of the output in the journal
	full     bool // the beginning is saved; all further output is held
	held     []byte
	left     int64 // bytes dropped before the held output
}

// Emit records an event and passes it on. An event that a resume needs is durable when Emit
// returns.
func (r *Recorder) Emit(e event.Event) error {
	if err := r.add(&e); err != nil || !resumeNeeds(e) {
		return err
	}
	return r.journal.Sync()
}

// add records an event and passes it on, before the next event.
func (r *Recorder) add(e *event.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.record(e); err != nil {
		return err
	}
	for _, s := range r.sinks {
		s.Emit(*e)
	}
	return nil
}

// NoteSink returns a sink for notes. They become events of an operation.
func (r *Recorder) NoteSink(operation, cluster string) event.Sink {
	return event.SinkFunc(func(e event.Event) {
		e.Operation, e.Cluster = operation, cluster
		_ = r.Emit(e) // the journal keeps its first error
	})
}

// Sync returns when all events that were emitted before are durable. A step calls it before it
// changes a host: the journal then contains the start of each change.
func (r *Recorder) Sync() error { return r.journal.Sync() }

// resumeNeeds reports whether a resume would go wrong without e. Other events only inform
// the user or can be found again by a check.
func resumeNeeds(e event.Event) bool {
	switch e.Type {
	case event.OperationStarted, event.OperationFinished:
		return true
	case event.StepFinished:
		return e.Outcome != event.Unchanged && e.Outcome != event.Skipped
	}
	return false
}

func (r *Recorder) record(e *event.Event) error {
	step := stepOn{e.Task, e.Host}
	switch e.Type {
	case event.StepOutput:
		out := r.outputs[step]
		if out == nil {
			out = &outputs{}
			r.outputs[step] = out
		}
		if out.holds(e.Message) {
			r.number(e)
			return nil
		}
	case event.StepFinished:
		if err := r.recordHeld(step, *e); err != nil {
			return err
		}
	}
	r.number(e)
	return r.journal.Append(*e)
}

func (r *Recorder) number(e *event.Event) {
	r.seq++
	e.Seq, e.Time = r.seq, r.now().UTC()
}

// recordHeld saves the end of a step's output before the step's finish.
func (r *Recorder) recordHeld(step stepOn, finish event.Event) error {
	out := r.outputs[step]
	delete(r.outputs, step)
	if out == nil || len(out.held) == 0 {
		return nil
	}
	e := event.Event{
		Type: event.StepOutput, Operation: finish.Operation, Cluster: finish.Cluster,
		Module: finish.Module, Task: finish.Task, Title: finish.Title, Host: finish.Host, Message: out.end(),
	}
	r.number(&e)
	return r.journal.Append(e)
}

// holds reports whether a piece of output is not to be saved now, and keeps it then.
func (o *outputs) holds(piece string) bool {
	if cost := len(piece) + pieceCost; !o.full && o.recorded+cost <= outputShare {
		o.recorded += cost
		return false
	}
	o.full = true
	o.held = append(o.held, piece...)
	if len(o.held) > 2*outputShare { // not for every piece, because this moves memory
		o.cut()
	}
	return true
}

// cut drops the beginning of the held output, up to the end of a line if one is near.
func (o *outputs) cut() {
	drop := len(o.held) - outputShare
	if drop <= 0 {
		return
	}
	if i := bytes.IndexByte(o.held[drop-1:drop+outputShare/8], '\n'); i >= 0 {
		drop += i
	}
	for drop < len(o.held) && !utf8.RuneStart(o.held[drop]) {
		drop++
	}
	o.left += int64(drop)
	o.held = append(o.held[:0], o.held[drop:]...)
}

// end returns the end of the output for the journal, after a line with the number of
// missing bytes.
func (o *outputs) end() string {
	o.cut()
	if o.left == 0 {
		return string(o.held)
	}
	return fmt.Sprintf("[... %d bytes of output omitted ...]\n%s", o.left, o.held)
}
