package view

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"slipway.dev/slipway/internal/bytesize"
)

// A Prefixed merges the output of several hosts: it writes whole lines, each with
// its host's name first. A line that is too long is written in pieces, and each
// further piece is marked, so that the output can be reassembled.
type Prefixed struct {
	mu       sync.Mutex
	width    int
	paint    paint
	terminal bool
}

// NewPrefixed returns a Prefixed for hosts with these names. For a terminal, control
// characters are escaped, so that no host overwrites the output of others; otherwise the
// output is not changed.
func NewPrefixed(names []string, s Style, terminal bool) *Prefixed {
	p := &Prefixed{paint: paint(s.Colour), terminal: terminal}
	for _, n := range names {
		p.width = max(p.width, len(n))
	}
	return p
}

// Writer returns a writer for one stream of a host, which writes lines to w. Its
// Close writes a last line without a newline.
func (p *Prefixed) Writer(w io.Writer, name string) io.WriteCloser {
	name = p.paint.in(bold, fmt.Sprintf("%-*s", p.width, name))
	return &prefixed{p: p, w: w, line: name + " | ", piece: name + " + "}
}

type prefixed struct {
	p           *Prefixed
	w           io.Writer
	line, piece string // the prefix of a line, and of a further piece of it
	part        []byte // of a line that has no newline yet
	long        bool   // reports whether a piece of the line is written
}

// maxPart limits how much of a line without a newline is buffered, in bytes.
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

// A Copying shows the progress of copies to or from several hosts: on a terminal
// a line that is overwritten, otherwise a new line from time to time. It shows
// nothing for a copy that ends quickly.
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

// A CopyProgress is the progress of a copy to or from a host, in bytes and files.
type CopyProgress struct {
	Done, Total     int64
	Files, AllFiles int
}

const (
	copyFrame = 200 * time.Millisecond
	copyLine  = 10 * time.Second
)

// NewCopying returns a Copying that writes to w.
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

// Read records how many bytes of the source have been read before the copy.
func (c *Copying) Read(done int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = true
	if now, due := c.due(); due {
		c.show(fmt.Sprintf("reading %s, %s", bytesize.Bytes(done), c.rate(now, done)))
	}
}

// due returns the time, and reports whether the next line is due.
func (c *Copying) due() (now time.Time, due bool) {
	now = c.o.now()
	if now.Before(c.next) {
		return now, false
	}
	c.next = now.Add(c.pause())
	return now, true
}

func (c *Copying) rate(now time.Time, done int64) string {
	return bytesize.Bytes(int64(float64(done)/max(now.Sub(c.from).Seconds(), 0.001))) + "/s"
}

// See records a host's progress.
func (c *Copying) See(host string, p CopyProgress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[host] = p
	if c.read { // the rate does not include the time for reading
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
	line := fmt.Sprintf("copying %s of %s, %s", bytesize.Bytes(sum.Done), bytesize.Bytes(sum.Total), c.rate(now, sum.Done))
	if sum.AllFiles > len(c.done) { // more than one file per host
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

// Close removes the line from the terminal.
func (c *Copying) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wide > 0 {
		fmt.Fprintf(c.w, "\r%s\r", strings.Repeat(" ", c.wide))
		c.wide = 0
	}
}
