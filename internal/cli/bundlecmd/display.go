package bundlecmd

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/iec"
)

// A Display shows a build's progress: on a terminal one live line, for what is
// compiled rather than for what is fetched or packed beside it, and one lasting
// line for each component that is done; elsewhere plain lines, one for each
// component and phase.
type Display struct {
	w    io.Writer
	size func() (columns, rows int) // of the terminal; nil if there is none

	mu    sync.Mutex
	live  bool              // a live line stands on the terminal
	head  *bundle.Progress  // what the live line says; nil: nothing
	shown map[string]string // component → phase last printed
	last  time.Time
}

// NewDisplay shows progress on w, a terminal of a size, or something else
// without.
func NewDisplay(w io.Writer, size func() (columns, rows int)) *Display {
	return &Display{w: w, size: size, shown: map[string]string{}}
}

// redraw bounds how often the live line is drawn.
const redraw = 100 * time.Millisecond

// Show takes one piece of progress.
func (d *Display) Show(p bundle.Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lasting := p.Phase == source.Cached || p.Phase == source.Done || p.Phase == source.Note
	switch {
	case lasting:
		d.clear()
		fmt.Fprintln(d.w, view.Printable(line(p)))
		if d.head != nil && d.head.Component == p.Component {
			d.head = nil
		}
		d.draw()
	case d.size != nil:
		if d.head == nil || d.head.Component == p.Component || p.Phase == source.Compiling {
			d.head = &p
			d.draw()
		}
	case d.shown[p.Component] != string(p.Phase):
		fmt.Fprintln(d.w, view.Printable(line(p)))
	}
	d.shown[p.Component] = string(p.Phase)
}

// Close takes the live line off.
func (d *Display) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
}

func (d *Display) clear() {
	if d.live {
		fmt.Fprint(d.w, "\r\x1b[K")
		d.live = false
	}
}

// draw draws the live line, unless that was done a moment ago.
func (d *Display) draw() {
	if d.head == nil {
		return
	}
	p, now := *d.head, time.Now()
	if d.live && d.shown[p.Component] == string(p.Phase) && now.Sub(d.last) < redraw {
		return
	}
	d.last = now
	d.clear()
	text := line(p)
	if p.Message != "" {
		text += "  " + p.Message
	}
	text = view.Printable(text)
	width, _ := d.size()
	if r := []rune(text); len(r) >= width {
		text = string(r[:max(0, width-1)])
	}
	fmt.Fprint(d.w, text)
	d.live = true
}

// line is progress in words.
func line(p bundle.Progress) string {
	if p.Phase == source.Note {
		return "note: " + p.Message
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-36s %-9s", p.Component, p.Phase)
	switch {
	case p.Unit == "bytes" && p.Phase == source.Done:
		fmt.Fprintf(&b, " %s", iec.Bytes(p.Total))
	case p.Unit == "bytes" && p.Total > 0:
		fmt.Fprintf(&b, " %s of %s", iec.Bytes(p.Done), iec.Bytes(p.Total))
	case p.Unit == "packages" && p.Total > 0:
		fmt.Fprintf(&b, " %d of %d packages", p.Done, p.Total)
	}
	if p.Elapsed >= time.Second {
		fmt.Fprintf(&b, " %s", p.Elapsed.Round(time.Second))
	}
	return strings.TrimRight(b.String(), " ")
}
