package view

import (
	"fmt"
	"io"
	"sync"
	"time"

	"slipway.dev/slipway/internal/event"
)

// stillEvery is the interval at which a plain view shows the progress of a transfer.
const stillEvery = 10 * time.Second

// Plain shows an operation as lines, for logs and pipes.
type Plain struct {
	mu      sync.Mutex
	w       io.Writer
	opts    Options
	track   *track
	columns columns
	said    map[key]time.Time // when a step's progress was last shown
	states  map[string]int    // by state, such as "connecting": the number of hosts that had it
	stopped []stopped         // cancelled tasks that are not shown yet
	closed  bool
}

var _ View = (*Plain)(nil)

// NewPlain returns a plain view that writes to w.
func NewPlain(w io.Writer, o Options) *Plain {
	return &Plain{
		w: o.Style.Writer(w), opts: o, track: newTrack(o.Plan), columns: columnsFor(o.Plan),
		said: map[key]time.Time{}, states: map[string]int{},
	}
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
	if !telling(e, v.opts.Debug) || !v.opts.Debug && (v.stateOfMany(e) || v.hold(e, was)) {
		return
	}
	v.release()
	for _, l := range v.columns.line(e, was, v.track.start, paint(v.opts.Style.Colour)) {
		fmt.Fprintln(v.w, l)
	}
}

// A stopped is a task that was cancelled on some hosts.
type stopped struct {
	first event.Event
	was   running
	hosts int
}

// hold delays a cancelled step, so that its task is shown once for all hosts. It
// reports whether the event is such a step.
func (v *Plain) hold(e event.Event, was running) bool {
	if e.Type != event.StepFinished || e.Outcome != event.Cancelled {
		return false
	}
	for i := range v.stopped {
		if v.stopped[i].first.Task == e.Task {
			v.stopped[i].hosts++
			return true
		}
	}
	v.stopped = append(v.stopped, stopped{e, was, 1})
	return true
}

// release shows the delayed tasks.
func (v *Plain) release() {
	for _, s := range v.stopped {
		if s.hosts > 1 {
			s.first.Host = fmt.Sprintf("%d hosts", s.hosts)
		}
		for _, l := range v.columns.line(s.first, s.was, v.track.start, paint(v.opts.Style.Colour)) {
			fmt.Fprintln(v.w, l)
		}
	}
	v.stopped = nil
}

// stateOfMany reports whether a note is a state that more than fewHosts hosts
// have had.
func (v *Plain) stateOfMany(e event.Event) bool {
	if e.Type != event.Note || e.Host == "" || v.track.state[e.Host] == "" {
		return false
	}
	v.states[e.Message]++
	return v.states[e.Message] > fewHosts
}

// progress shows a transfer every stillEvery: a line for each event would hide
// other lines.
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

// Write shows text that is not an event.
func (v *Plain) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.release()
	return v.w.Write(b)
}

// Close ends the view.
func (v *Plain) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.release()
	v.closed = true
}
