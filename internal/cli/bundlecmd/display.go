package bundlecmd

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/cli/view"
)

// A Display shows the progress of a build. On a terminal it shows one live line and
// a permanent line for each finished component; the live line prefers a component
// that is compiled to one that is fetched or packed. Otherwise it shows a line for
// each component and phase.
type Display struct {
	w    io.Writer
	size func() (columns, rows int) // of the terminal; nil if there is none

	mu    sync.Mutex
	live  bool              // reports whether the terminal shows a live line
	head  *bundle.Progress  // the progress in the live line; nil if there is none
	shown map[string]string // component → phase last printed
	last  time.Time
}

// NewDisplay returns a Display that writes to w. size returns the size of the terminal;
// it is nil if w is not a terminal.
func NewDisplay(w io.Writer, size func() (columns, rows int)) *Display {
	return &Display{w: w, size: size, shown: map[string]string{}}
}

// redrawInterval is the shortest time between two drawings of the live line.
const redrawInterval = 100 * time.Millisecond

// ShowProgress shows a progress report.
func (d *Display) ShowProgress(p bundle.Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lasting := p.Phase == source.Cached || p.Phase == source.Done || p.Phase == source.Note
	switch {
	case lasting:
		d.clearLine()
		fmt.Fprintln(d.w, view.PrintableLine(formatProgress(p)))
		if d.head != nil && d.head.Component == p.Component {
			d.head = nil
		}
		d.drawLine()
	case d.size != nil:
		if d.head == nil || d.head.Component == p.Component || p.Phase == source.Compiling {
			d.head = &p
			d.drawLine()
		}
	case d.shown[p.Component] != string(p.Phase):
		fmt.Fprintln(d.w, view.PrintableLine(formatProgress(p)))
	}
	d.shown[p.Component] = string(p.Phase)
}

// Close removes the live line.
func (d *Display) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clearLine()
}

func (d *Display) clearLine() {
	if d.live {
		fmt.Fprint(d.w, "\r\x1b[K")
		d.live = false
	}
}

// drawLine draws the live line, unless it was drawn less than redrawInterval ago.
func (d *Display) drawLine() {
	if d.head == nil {
		return
	}
	p, now := *d.head, time.Now()
	if d.live && d.shown[p.Component] == string(p.Phase) && now.Sub(d.last) < redrawInterval {
		return
	}
	d.last = now
	d.clearLine()
	text := formatProgress(p)
	if p.Message != "" {
		text += "  " + p.Message
	}
	text = view.PrintableLine(text)
	width, _ := d.size()
	if r := []rune(text); len(r) >= width {
		text = string(r[:max(0, width-1)])
	}
	fmt.Fprint(d.w, text)
	d.live = true
}

// formatProgress formats a progress report.
func formatProgress(p bundle.Progress) string {
	if p.Phase == source.Note {
		return "note: " + p.Message
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-36s %-9s", p.Component, p.Phase)
	switch {
	case p.Unit == "bytes" && p.Phase == source.Done:
		fmt.Fprintf(&b, " %s", bytesize.Format(p.Total))
	case p.Unit == "bytes" && p.Total > 0:
		fmt.Fprintf(&b, " %s of %s", bytesize.Format(p.Done), bytesize.Format(p.Total))
	case p.Unit == "packages" && p.Total > 0:
		fmt.Fprintf(&b, " %d of %d packages", p.Done, p.Total)
	}
	if p.Elapsed >= time.Second {
		fmt.Fprintf(&b, " %s", p.Elapsed.Round(time.Second))
	}
	return strings.TrimRight(b.String(), " ")
}
