package view

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"slipway.dev/slipway/internal/iec"
)

// A Prefixed writes what several hosts print, each line with its host before it
// and whole. Of a line that is too long for that, each further piece says that
// it goes on: what was printed can be put together again.
type Prefixed struct {
	mu       sync.Mutex
	width    int
	paint    paint
	terminal bool
}

// NewPrefixed is for hosts of these names. On a terminal, no host steers it, and so
// writes over what others print; elsewhere all is written as it is.
func NewPrefixed(names []string, s Style, terminal bool) *Prefixed {
	p := &Prefixed{paint: paint(s.Colour), terminal: terminal}
	for _, n := range names {
		p.width = max(p.width, len(n))
	}
	return p
}

// Writer is where one stream of a host goes, on its way to w. Close writes a
// last line that has no end.
func (p *Prefixed) Writer(w io.Writer, name string) io.WriteCloser {
	name = p.paint.in(bold, fmt.Sprintf("%-*s", p.width, name))
	return &prefixed{p: p, w: w, line: name + " | ", piece: name + " + "}
}

type prefixed struct {
	p           *Prefixed
	w           io.Writer
	line, piece string // what stands before a line, and before more of it
	part        []byte // of a line that has no end yet
	long        bool   // some of it is written
}

// maxPart is how much of a line without an end is kept.
const maxPart = 64 << 10

func (w *prefixed) Write(b []byte) (int, error) {
	w.part = append(w.part, b...)
	var out bytes.Buffer
	for {
		if i := bytes.IndexByte(w.part, '\n'); i >= 0 && i <= maxPart {
			w.next(&out, i)
			w.part, w.long = w.part[1:], false
			continue
		}
		if len(w.part) <= maxPart {
			return len(b), w.put(out.Bytes())
		}
		i := maxPart
		for i > maxPart-utf8.UTFMax && !utf8.RuneStart(w.part[i]) {
			i--
		}
		w.next(&out, i)
		w.long = true
	}
}

// next writes n bytes of a line.
func (w *prefixed) next(out *bytes.Buffer, n int) {
	head := w.line
	if w.long {
		head = w.piece
	}
	text := string(w.part[:n])
	if w.p.terminal {
		text = Visible(strings.TrimSuffix(text, "\r"))
	}
	fmt.Fprintf(out, "%s%s\n", head, text)
	w.part = w.part[n:]
}

func (w *prefixed) put(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	_, err := w.w.Write(b)
	return err
}

func (w *prefixed) Close() error {
	if len(w.part) == 0 {
		return nil
	}
	var out bytes.Buffer
	w.next(&out, len(w.part))
	return w.put(out.Bytes())
}

// A Copying shows how far copies to or from several hosts are: a line that is
// written over on a terminal, a line now and then elsewhere, and nothing of
// what takes no time.
type Copying struct {
	w    io.Writer
	o    Options
	mu   sync.Mutex
	from time.Time
	next time.Time
	read bool
	wide int
	done map[string]CopyProgress
}

// A CopyProgress is how far a copy to or from a host is, in bytes and in files.
type CopyProgress struct {
	Done, Total     int64
	Files, AllFiles int
}

const (
	copyFrame = 200 * time.Millisecond
	copyLine  = 10 * time.Second
)

// NewCopying shows copies on w.
func NewCopying(w io.Writer, o Options) *Copying {
	c := &Copying{w: w, o: o, done: map[string]CopyProgress{}}
	c.from = c.o.now()
	c.next = c.from.Add(c.pause())
	return c
}

func (c *Copying) pause() time.Duration {
	if c.o.Size == nil {
		return copyLine
	}
	return copyFrame
}

// Read takes note of how much has been read, in bytes, of what is copied then.
func (c *Copying) Read(done int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = true
	if now, due := c.due(); due {
		c.show(fmt.Sprintf("reading %s, %s", iec.Bytes(done), c.rate(now, done)))
	}
}

// due says that it is time to show something.
func (c *Copying) due() (now time.Time, due bool) {
	now = c.o.now()
	if now.Before(c.next) {
		return now, false
	}
	c.next = now.Add(c.pause())
	return now, true
}

func (c *Copying) rate(now time.Time, done int64) string {
	return iec.Bytes(int64(float64(done)/max(now.Sub(c.from).Seconds(), 0.001))) + "/s"
}

// See takes note of a host's progress.
func (c *Copying) See(host string, p CopyProgress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[host] = p
	if c.read { // what it took to read is no part of the rate
		c.read, c.from = false, c.o.now()
	}
	if now, due := c.due(); due {
		c.draw(now)
	}
}

func (c *Copying) draw(now time.Time) {
	var sum CopyProgress
	whole := 0
	for _, d := range c.done {
		sum.Done, sum.Total, sum.Files, sum.AllFiles = sum.Done+d.Done, sum.Total+d.Total, sum.Files+d.Files, sum.AllFiles+d.AllFiles
		if d.Done == d.Total && d.Files >= d.AllFiles {
			whole++
		}
	}
	line := fmt.Sprintf("copying %s of %s, %s", iec.Bytes(sum.Done), iec.Bytes(sum.Total), c.rate(now, sum.Done))
	if sum.AllFiles > len(c.done) { // more than one for a host
		line = fmt.Sprintf("copying %d of %d files, %s", sum.Files, sum.AllFiles, strings.TrimPrefix(line, "copying "))
	}
	if len(c.done) > 1 {
		line += fmt.Sprintf(", %d of %d hosts done", whole, len(c.done))
	}
	c.show(line)
}

func (c *Copying) show(line string) {
	if c.o.Size == nil {
		fmt.Fprintln(c.w, line)
		return
	}
	columns, _ := c.o.Size()
	line = cut(line, columns-1, c.o.Style.Unicode)
	fmt.Fprintf(c.w, "\r%s%s", line, strings.Repeat(" ", max(0, c.wide-len(line))))
	c.wide = len(line)
}

// Close takes the line away.
func (c *Copying) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wide > 0 {
		fmt.Fprintf(c.w, "\r%s\r", strings.Repeat(" ", c.wide))
		c.wide = 0
	}
}
