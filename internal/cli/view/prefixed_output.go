package view

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// A PrefixedOutput merges the output of several hosts: it writes whole lines, each with
// its host's name first. A line that is too long is written in pieces, and each
// further piece is marked, so that the output can be reassembled.
type PrefixedOutput struct {
	mu       sync.Mutex
	width    int
	paint    paint
	terminal bool
}

// NewPrefixedOutput returns an output for hosts with these names. For a terminal,
// control characters are escaped, so that no host overwrites the output of others;
// otherwise the output is not changed.
func NewPrefixedOutput(names []string, s Style, terminal bool) *PrefixedOutput {
	p := &PrefixedOutput{paint: paint(s.Colour), terminal: terminal}
	for _, n := range names {
		p.width = max(p.width, len(n))
	}
	return p
}

// NewWriter returns a writer for one stream of a host, which writes lines to w. Its
// Close writes a last line without a newline.
func (p *PrefixedOutput) NewWriter(w io.Writer, name string) io.WriteCloser {
	name = p.paint.in(bold, fmt.Sprintf("%-*s", p.width, name))
	return &prefixedWriter{p: p, w: w, line: name + " | ", piece: name + " + "}
}

type prefixedWriter struct {
	p           *PrefixedOutput
	w           io.Writer
	line, piece string // the prefix of a line, and of a further piece of it
	part        []byte // of a line that has no newline yet
	isContinued bool   // reports whether a piece of the line is written
}

// maxPart limits how much of a line without a newline is buffered, in bytes.
const maxPart = 64 << 10

func (w *prefixedWriter) Write(b []byte) (int, error) {
	w.part = append(w.part, b...)
	var out bytes.Buffer
	for {
		if i := bytes.IndexByte(w.part, '\n'); i >= 0 && i <= maxPart {
			w.writePiece(&out, i)
			w.part, w.isContinued = w.part[1:], false
			continue
		}
		if len(w.part) <= maxPart {
			return len(b), w.flushLines(out.Bytes())
		}
		i := maxPart
		for i > maxPart-utf8.UTFMax && !utf8.RuneStart(w.part[i]) {
			i--
		}
		w.writePiece(&out, i)
		w.isContinued = true
	}
}

// writePiece writes n bytes of a line.
func (w *prefixedWriter) writePiece(out *bytes.Buffer, n int) {
	head := w.line
	if w.isContinued {
		head = w.piece
	}
	text := string(w.part[:n])
	if w.p.terminal {
		text = EscapeControls(strings.TrimSuffix(text, "\r"))
	}
	fmt.Fprintf(out, "%s%s\n", head, text)
	w.part = w.part[n:]
}

func (w *prefixedWriter) flushLines(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	_, err := w.w.Write(b)
	return err
}

func (w *prefixedWriter) Close() error {
	if len(w.part) == 0 {
		return nil
	}
	var out bytes.Buffer
	w.writePiece(&out, len(w.part))
	return w.flushLines(out.Bytes())
}
