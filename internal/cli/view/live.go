package view

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// frameInterval is the interval between two frames of a live view.
const frameInterval = 100 * time.Millisecond

// Live shows an operation on a terminal: a scrolling log of finished tasks, and
// below it a block with a line for each host, which is redrawn in place.
type Live struct {
	mu        sync.Mutex
	w         io.Writer
	opts      Options
	state     *progressState
	columns   columns
	log       []string       // lines not yet written above the block
	cancelled cancelledSteps // not shown yet
	partial   string         // written text that has no newline yet
	block     []string       // the block on the screen, without colours
	size      [2]int         // of the screen when the block was drawn
	closed    bool
	done      chan struct{}
	drawer    sync.WaitGroup
}

var _ View = (*Live)(nil)

// NewLive returns a live view on w, a terminal of o.Size. The caller must call
// Close, which waits for the last frame.
func NewLive(w io.Writer, o Options) *Live {
	v := &Live{w: w, opts: o, state: newProgressState(o.Plan), columns: columnsFor(o.Plan), done: make(chan struct{})}
	v.drawer.Go(v.drawFrames)
	return v
}

func (v *Live) drawFrames() {
	frames := v.opts.Frames
	if frames == nil {
		t := time.NewTicker(frameInterval)
		defer t.Stop()
		frames = t.C
	}
	for {
		select {
		case <-v.done:
			return
		case <-frames:
			v.drawFrame()
		}
	}
}

// Emit shows an event with the next frame.
func (v *Live) Emit(e event.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	e = v.opts.setMissingTime(e)
	was := v.state.recordEvent(e)
	if e.Type == event.Note && v.state.hostState[e.Host] != "" && !v.opts.Debug {
		return // the host's line shows it
	}
	if !v.opts.Debug && v.cancelled.add(e, was) {
		return
	}
	if e, ok := v.foldTask(e, &was); ok && isShownInLog(e, v.opts.Debug) {
		v.logEvent(e, was)
	}
}

// logEvent adds the lines of an event to the log.
func (v *Live) logEvent(e event.Event, was runningStep) {
	width, _ := v.opts.Size()
	c := v.columns.limitTo(width)
	v.log = append(v.log, c.formatEvent(e, was, v.state.start, paint(v.opts.Style.Colour))...)
	v.columns = columns{max(v.columns.host, c.host), max(v.columns.what, c.what)}
}

// foldTask shows a planned task once, when it has ended on all its hosts, and
// failures immediately. It returns false for an event that is not shown now.
func (v *Live) foldTask(e event.Event, was *runningStep) (event.Event, bool) {
	if e.Type != event.StepFinished || v.opts.Debug {
		return e, true
	}
	hosts, through := v.state.findEndedTask(e.Task)
	switch {
	case e.Outcome == event.Failed, e.Outcome == event.Ignored, hosts <= 1:
		return e, true
	case !through:
		return e, false
	}
	a := v.state.tally[e.Task]
	if a.changed == 0 {
		return e, false
	}
	e.Outcome, e.Failure, was.start = event.Changed, nil, a.start
	e.Host = fmt.Sprintf("%d hosts", hosts)
	if a.failed > 0 {
		e.Host = fmt.Sprintf("%d of %d hosts", a.changed, hosts)
	}
	return e, true
}

// Write shows text above the block, line by line.
func (v *Live) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return v.w.Write(b)
	}
	lines := strings.Split(v.partial+string(b), "\n")
	v.partial = lines[len(lines)-1]
	v.log = append(v.log, lines[:len(lines)-1]...)
	return len(b), nil
}

// Close removes the block from the screen and keeps the log.
func (v *Live) Close() {
	v.mu.Lock()
	closed := v.closed
	v.closed = true
	v.mu.Unlock()
	if closed {
		return
	}
	close(v.done)
	v.drawer.Wait()
	if e, was, ok := v.cancelled.take(); ok {
		v.logEvent(e, was)
	}
	if v.partial != "" {
		v.log = append(v.log, v.partial)
	}
	columns, rows := v.opts.Size()
	v.replaceBlock(columns, rows, nil)
}

// drawFrame puts a frame on the screen.
func (v *Live) drawFrame() {
	v.mu.Lock()
	defer v.mu.Unlock()
	columns, rows := v.opts.Size()
	v.replaceBlock(columns, rows, v.buildFrame(columns-1, rows))
}

// replaceBlock replaces the old block with the log and a new block, in one write. It
// overwrites lines without clearing them first, so that nothing flickers. The
// cursor is hidden only within a frame, so that a killed program does not leave
// it hidden.
func (v *Live) replaceBlock(columns, rows int, frame [][]span) {
	var b strings.Builder
	b.WriteString("\x1b[?25l\r")
	old := v.block
	if up := countRows(old, columns); up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	// The rest of an old line is overwritten with spaces: a line that is erased
	// to its end is as wide as the terminal, and would leave blank rows when the
	// terminal becomes narrower. After a change of size or a wrapped line the
	// positions are unknown, and everything is erased.
	size := [2]int{columns, rows}
	whole := size == v.size
	if !whole {
		b.WriteString("\x1b[J")
		v.size = size
	}
	row := 0
	line := func(text string, length int) {
		b.WriteString(text)
		switch {
		case !whole:
			b.WriteString("\x1b[K")
		case row < len(old):
			b.WriteString(strings.Repeat(" ", max(0, utf8.RuneCountInString(old[row])-length)))
		}
		b.WriteString("\n")
		row++
	}
	for _, l := range v.log {
		l = v.opts.Style.Text(l)
		n := utf8.RuneCountInString(escapeSequences.ReplaceAllString(l, ""))
		whole = whole && n <= columns
		line(l, n)
	}
	v.log, v.block = nil, nil
	for _, l := range frame {
		text := joinText(l)
		v.block = append(v.block, text)
		line(paintSpans(l, paint(v.opts.Style.Colour)), utf8.RuneCountInString(text))
	}
	b.WriteString("\x1b[J\x1b[?25h")
	_, _ = io.WriteString(v.w, b.String()) // the terminal may be closed
}

// countRows returns the number of rows that lines take on a terminal of a width,
// which may have become narrower since they were drawn.
func countRows(lines []string, columns int) int {
	n := 0
	for _, l := range lines {
		n += 1 + max(0, utf8.RuneCountInString(l)-1)/max(1, columns)
	}
	return n
}

// buildFrame returns the block: a head line, and as many hosts as fit.
func (v *Live) buildFrame(width, rows int) [][]span {
	if v.state.start.IsZero() || rows < 2 {
		return nil
	}
	lines := [][]span{v.formatHead()}
	room := max(0, min(rows-3, max(3, rows/2))) // the head, the rest and the cursor also need lines
	byHost := map[string]*runningStep{}
	for _, s := range v.state.listRunningSteps() {
		if byHost[s.host] == nil {
			byHost[s.host] = s
		}
	}
	var shown []string
	hidden := map[string]int{}
	for _, h := range v.listShownHosts(byHost) {
		busy := byHost[h] != nil
		if len(shown) < room && (busy || len(v.state.hosts) <= room) {
			shown = append(shown, h)
			continue
		}
		hidden[v.describeHostState(h, busy)]++
	}
	w := divideWidth(shown, byHost, v.state.findCommonDomain(), width)
	for _, h := range shown {
		lines = append(lines, v.formatHostRow(h, byHost[h], w))
	}
	if len(hidden) > 0 && rows > 2 {
		lines = append(lines, formatHiddenHosts(hidden))
	}
	for i := range lines {
		for j := range lines[i] {
			lines[i][j].text = v.opts.Style.Text(lines[i][j].text)
		}
		lines[i] = fitSpans(lines[i], width, v.opts.Style.Unicode)
	}
	return lines
}

// listShownHosts returns the hosts to show. It leaves out the manager while it is idle.
func (v *Live) listShownHosts(byHost map[string]*runningStep) []string {
	var out []string
	for _, h := range v.state.hosts {
		if h != "" || byHost[h] != nil {
			out = append(out, h)
		}
	}
	return out
}

// describeHostState returns the state of a host for its line or for the summary of
// hidden hosts.
func (v *Live) describeHostState(host string, busy bool) string {
	switch {
	case busy:
		return "busy"
	case v.state.hostState[host] != "":
		return v.state.hostState[host]
	case v.state.failed[host]:
		return "failed"
	case v.state.stepsLeft[host] > 0:
		return "waiting"
	}
	return "done"
}

func (v *Live) formatHead() []span {
	t := v.state
	what := "preparing"
	if t.kind != "" {
		what = operation.Kind(t.kind).Verb() + " cluster"
	}
	line := []span{{text: strings.TrimSpace(what + " " + t.cluster), code: bold}, {text: "  " + Duration(v.opts.currentTime().Sub(t.start))}}
	if t.planned > 0 {
		line = append(line, span{text: fmt.Sprintf("  %d of %d steps", t.finished, t.planned)})
	}
	if n := len(t.failed); n > 0 {
		line = append(line, span{text: fmt.Sprintf("  %d failed", n), code: red})
	}
	return line
}

func (v *Live) formatHostRow(host string, s *runningStep, w columnWidths) []span {
	short := truncateMiddle(strings.TrimSuffix(hostLabel(host), w.domain), w.names, v.opts.Style.Unicode)
	name := span{text: "  " + padRight(short, w.names) + "  ", code: cyan}
	if s == nil {
		state := v.describeHostState(host, false)
		code := faint
		if state == "failed" {
			code = red
		}
		return []span{name, {text: state, code: code}}
	}
	line := []span{
		name,
		{text: padRight(truncate(s.title, w.titles, v.opts.Style.Unicode), w.titles)},
		{text: fmt.Sprintf("%8s", Duration(v.opts.currentTime().Sub(s.start))), code: faint},
	}
	left := w.left
	if s.attempt > 1 {
		attempt := fmt.Sprintf("  attempt %d", s.attempt)
		line, left = append(line, span{text: attempt, code: yellow}), left-len(attempt)
	}
	return append(line, formatStepProgress(s, left)...)
}

// formatStepProgress shows the progress of a step and its current item, shortened to the
// columns in room.
func formatStepProgress(s *runningStep, room int) (line []span) {
	text := "  " + formatAmount(s.done, s.unit)
	if s.total > 0 {
		percent := fmt.Sprintf(" %3d%%", min(100, s.done*100/s.total))
		if text = " " + percent; room >= barWidth {
			text = "  " + formatBar(s.done, s.total) + percent + " of " + formatAmount(s.total, s.unit)
		}
	}
	if (s.done > 0 || s.total > 0) && len(text) <= room {
		line, room = append(line, span{text: text}), room-len(text)
	}
	if s.item != "" && room > len("  …") {
		line = append(line, span{text: "  " + s.item, code: faint}) // cut with the line
	}
	return line
}

// barWidth is the width of a bar with its figures.
const barWidth = len("  [##########] 100% of 999.9 MiB")

// columnWidths divides the width of a terminal between the columns of hosts' lines.
type columnWidths struct {
	names, titles int
	left          int    // for the columns after the time
	domain        string // the common end of all names
}

func divideWidth(shown []string, byHost map[string]*runningStep, domain string, width int) columnWidths {
	w := columnWidths{domain: domain, titles: 24}
	for _, h := range shown {
		w.names = max(w.names, utf8.RuneCountInString(strings.TrimSuffix(hostLabel(h), domain)))
		if s := byHost[h]; s != nil {
			w.titles = max(w.titles, utf8.RuneCountInString(s.title))
		}
	}
	w.names = min(w.names, max(8, width/3))
	w.titles = min(w.titles, max(10, width-w.names-38))
	w.left = width - w.names - w.titles - len("        0.0s")
	return w
}

func formatBar(done, total int64) string {
	const width = 10
	n := int(min(width, done*width/total))
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", width-n) + "]"
}

func formatHiddenHosts(hidden map[string]int) []span {
	total := 0
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(hidden)) {
		total += hidden[state]
		parts = append(parts, fmt.Sprintf("%d %s", hidden[state], state))
	}
	return []span{{text: fmt.Sprintf("  and %d more: %s", total, strings.Join(parts, ", ")), code: faint}}
}
