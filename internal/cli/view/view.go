// Package view shows operations: to people as a live screen or as plain lines,
// to programs as JSON or YAML. It receives events and results and makes no
// decisions.
package view

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
)

// A Format is a value of the flag -o.
type Format string

// The formats.
const (
	Text Format = "text"
	JSON Format = "json"
	YAML Format = "yaml"
)

// ParseFormat reads the value of -o.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case Text, JSON, YAML:
		return f, nil
	}
	return "", fmt.Errorf("output format %q: want text, json or yaml", s)
}

// A View shows the events of one operation. After Close it shows nothing. Its
// methods may be called from several goroutines.
type View interface {
	event.Sink
	// Write shows text that is not an event, such as a log line.
	io.Writer
	Close()
}

// Style describes what a terminal can show.
type Style struct {
	Colour  bool
	Unicode bool
}

// asciiReplacer replaces Slipway's own non-ASCII characters. Text from other programs is
// not changed.
var asciiReplacer = strings.NewReplacer("…", "...", "→", "->")

// Text returns text as the terminal can show it. All text for people passes through
// Text or through Writer, which uses it: parts of that text come from hosts, registries
// and clusters, and must not control the terminal. Text keeps only the escape sequences
// of Slipway's own colours.
func (s Style) Text(text string) string {
	if !s.Unicode {
		text = asciiReplacer.Replace(text)
	}
	if !s.Colour {
		return EscapeControls(text)
	}
	var b strings.Builder
	for {
		at := colours.FindStringIndex(text)
		if at == nil {
			break
		}
		b.WriteString(EscapeControls(text[:at[0]]) + text[at[0]:at[1]])
		text = text[at[1]:]
	}
	return b.String() + EscapeControls(text)
}

// Writer returns a writer that passes text through Text to w. A character must not be
// split over two writes.
func (s Style) Writer(w io.Writer) io.Writer { return styledWriter{w, s} }

type styledWriter struct {
	w     io.Writer
	style Style
}

func (s styledWriter) Write(b []byte) (int, error) {
	if _, err := io.WriteString(s.w, s.style.Text(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// ReadStyle returns the style that the environment allows: it reads NO_COLOR, TERM
// and the locale.
func ReadStyle(getenv func(string) string) Style {
	s := Style{Colour: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb" && getenv("TERM") != ""}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := getenv(name); v != "" {
			v = strings.ToLower(v)
			s.Unicode = strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
			break
		}
	}
	return s
}

// Options configure a view for people.
type Options struct {
	Style Style
	// Debug also shows the output of programs and steps that changed nothing.
	Debug bool
	// Plan gives the number of steps; nil if there is no plan.
	Plan *plan.Plan
	// Size returns the terminal's columns and rows; nil without a terminal.
	Size func() (columns, rows int)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Frames triggers drawing; nil means ten times a second.
	Frames <-chan time.Time
}

func (o *Options) currentTime() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// setMissingTime sets the time of an event from before an operation, which has no time
// from the journal.
func (o *Options) setMissingTime(e event.Event) event.Event {
	if e.Time.IsZero() {
		e.Time = o.currentTime()
	}
	return e
}

// NewHumanView returns a live view on a terminal, and a view of plain lines otherwise.
func NewHumanView(w io.Writer, o Options) View {
	if o.Size != nil {
		return NewLive(w, o)
	}
	return NewPlain(w, o)
}

// TerminalSizeFunc returns a function that reads the size of f, or nil if f is not a
// terminal that can show a live view.
func TerminalSizeFunc(f *os.File, getenv func(string) string) func() (columns, rows int) {
	if !IsTerminal(f) || getenv("TERM") == "dumb" || getenv("TERM") == "" {
		return nil
	}
	return func() (int, int) { return TerminalSize(f) }
}
