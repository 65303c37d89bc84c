package view

import (
	"fmt"
	"io"
	"sync"
	"time"

	"slipway.dev/slipway/internal/event"
)

// stillEvery is how often a plain view says that a transfer goes on.
const stillEvery = 10 * time.Second

// Plain shows an operation as lines, for logs and pipes.
type Plain struct {
	mu      sync.Mutex
	w       io.Writer
	opts    Options
	track   *track
	columns columns
	said    map[key]time.Time // when a step's progress was last shown
	closed  bool
}

var _ View = (*Plain)(nil)

// NewPlain makes a plain view on w.
func NewPlain(w io.Writer, o Options) *Plain {
	return &Plain{w: o.Style.Writer(w), opts: o, track: newTrack(o.Plan), columns: columnsFor(o.Plan), said: map[key]time.Time{}}
}

// Emit shows an event.
func (v *Plain) Emit(e event.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	e = v.opts.timed(e)
	was := v.track.see(e)
	if e.Type == event.StepProgress {
		v.progress(e)
		return
	}
	if !telling(e, v.opts.Debug) {
		return
	}
	for _, l := range v.columns.line(e, was, v.track.start, paint(v.opts.Style.Colour)) {
		fmt.Fprintln(v.w, l)
	}
}

// progress shows a transfer now and then: a line for each event would drown
// all else.
func (v *Plain) progress(e event.Event) {
	k := key{e.Task, e.Host}
	s := v.track.steps[k]
	if s == nil {
		return
	}
	last, ok := v.said[k]
	if !ok {
		v.said[k] = e.Time
		return
	}
	if e.Time.Sub(last) < stillEvery {
		return
	}
	v.said[k] = e.Time
	how := s.what
	switch {
	case s.total > 0:
		how = fmt.Sprintf("%d%% of %s  %s", min(100, s.done*100/s.total), amount(s.total, s.unit), how)
	case s.done > 0:
		how = amount(s.done, s.unit) + "  " + how
	}
	note := event.Event{Type: event.Note, Time: e.Time, Host: nameOf(e.Host), Message: title(s.module, s.title) + "  " + how}
	for _, l := range v.columns.line(note, running{}, v.track.start, paint(v.opts.Style.Colour)) {
		fmt.Fprintln(v.w, l)
	}
}

// Write shows text that is no event.
func (v *Plain) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.w.Write(b)
}

// Close ends the view.
func (v *Plain) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
}
