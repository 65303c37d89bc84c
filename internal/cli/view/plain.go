package view

import (
	"fmt"
	"io"
	"sync"
	"time"

	"slipway.dev/slipway/internal/event"
)

// progressInterval is the interval at which a plain view shows the progress of a
// transfer.
const progressInterval = 10 * time.Second

// Plain shows an operation as lines, for logs and pipes.
type Plain struct {
	mu        sync.Mutex
	w         io.Writer
	opts      Options
	state     *progressState
	columns   columns
	lastShown map[stepKey]time.Time // when a step's progress was last shown
	states    map[string]int        // by state, such as "connecting": the number of hosts that had it
	cancelled cancelledSteps        // not shown yet
	closed    bool
}

var _ View = (*Plain)(nil)

// NewPlain returns a plain view that writes to w.
func NewPlain(w io.Writer, o Options) *Plain {
	return &Plain{
		w: o.Style.Writer(w), opts: o, state: newProgressState(o.Plan), columns: columnsFor(o.Plan),
		lastShown: map[stepKey]time.Time{}, states: map[string]int{},
	}
}

// Emit shows an event.
func (v *Plain) Emit(e event.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	e = v.opts.setMissingTime(e)
	was := v.state.recordEvent(e)
	if e.Type == event.StepProgress {
		v.showProgress(e)
		return
	}
	if !isShownInLog(e, v.opts.Debug) || !v.opts.Debug && (v.isStateOfManyHosts(e) || v.cancelled.add(e, was)) {
		return
	}
	for _, l := range v.columns.formatEvent(e, was, v.state.start, paint(v.opts.Style.Colour)) {
		fmt.Fprintln(v.w, l)
	}
}

// showCancelled shows the cancelled steps, in one line.
func (v *Plain) showCancelled() {
	if e, was, ok := v.cancelled.take(); ok {
		for _, l := range v.columns.formatEvent(e, was, v.state.start, paint(v.opts.Style.Colour)) {
			fmt.Fprintln(v.w, l)
		}
	}
}

// isStateOfManyHosts reports whether a note is a state that more than fewHosts hosts
// have had.
func (v *Plain) isStateOfManyHosts(e event.Event) bool {
	if e.Type != event.Note || e.Host == "" || v.state.hostState[e.Host] == "" {
		return false
	}
	v.states[e.Message]++
	return v.states[e.Message] > fewHosts
}

// showProgress shows a transfer every progressInterval: a line for each event would hide
// other lines.
func (v *Plain) showProgress(e event.Event) {
	k := stepKey{e.Task, e.Host}
	s := v.state.steps[k]
	if s == nil {
		return
	}
	last, ok := v.lastShown[k]
	if !ok {
		v.lastShown[k] = e.Time
		return
	}
	if e.Time.Sub(last) < progressInterval {
		return
	}
	v.lastShown[k] = e.Time
	how := s.item
	switch {
	case s.total > 0:
		how = fmt.Sprintf("%d%% of %s  %s", min(100, s.done*100/s.total), formatAmount(s.total, s.unit), how)
	case s.done > 0:
		how = formatAmount(s.done, s.unit) + "  " + how
	}
	note := event.Event{Type: event.Note, Time: e.Time, Host: hostLabel(e.Host), Message: qualifyTitle(s.module, s.title) + "  " + how}
	for _, l := range v.columns.formatEvent(note, runningStep{}, v.state.start, paint(v.opts.Style.Colour)) {
		fmt.Fprintln(v.w, l)
	}
}

// Write shows text that is not an event.
func (v *Plain) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.showCancelled()
	return v.w.Write(b)
}

// Close ends the view.
func (v *Plain) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.showCancelled()
	v.closed = true
}
