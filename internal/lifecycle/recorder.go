package lifecycle

import (
	"bytes"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"slipway.dev/slipway/internal/event"
)

const (
	// outputShare is how much of a step's output on one host is recorded
	// from its beginning, and how much from its end, in bytes.
	outputShare = 512 << 10
	// pieceCost is about what a piece of output takes in the journal besides
	// its text: a program may write byte by byte.
	pieceCost = 256
)

// recorder gives events their number and time, records them, and passes them
// on, one at a time. What a program prints is passed on whole, and recorded
// only at its beginning and end: no program fills the disk of the records.
type recorder struct {
	now     func() time.Time
	journal interface{ Append(event.Event) error }
	sinks   []event.Sink

	mu      sync.Mutex
	seq     int64 // of the last event
	outputs map[stepOn]*outputs
}

// stepOn is a step on one host.
type stepOn struct{ task, host string }

// outputs is what a step's programs have printed, over all its attempts.
type outputs struct {
	recorded int  // cost of what is in the journal
	full     bool // the beginning is recorded; all else is held
	held     []byte
	left     int64 // bytes that were dropped before what is held
}

func (r *recorder) emit(e event.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.record(&e); err != nil {
		return err
	}
	for _, s := range r.sinks {
		s.Emit(e)
	}
	return nil
}

func (r *recorder) record(e *event.Event) error {
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

func (r *recorder) number(e *event.Event) {
	r.seq++
	e.Seq, e.Time = r.seq, r.now().UTC()
}

// recordHeld records the end of a step's output, before its finish.
func (r *recorder) recordHeld(step stepOn, finish event.Event) error {
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

// holds says that a piece is not to be recorded now, and keeps it.
func (o *outputs) holds(piece string) bool {
	if cost := len(piece) + pieceCost; !o.full && o.recorded+cost <= outputShare {
		o.recorded += cost
		return false
	}
	o.full = true
	o.held = append(o.held, piece...)
	if len(o.held) > 2*outputShare { // not at every piece: this moves what is kept
		o.cut()
	}
	return true
}

// cut drops the beginning of what is held, up to the end of a line if one is
// near.
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

// end is the output's end as it is recorded, led by a line that says how much
// is missing.
func (o *outputs) end() string {
	o.cut()
	if o.left == 0 {
		return string(o.held)
	}
	return fmt.Sprintf("[... %d bytes of output are not recorded ...]\n%s", o.left, o.held)
}
