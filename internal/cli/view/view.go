// Package view shows operations: to people as a live screen or as plain lines,
// to programs as JSON or YAML. It is told events and results, and decides
// nothing.
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

// A Format is what -o asks for.
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

// A View shows the events of one operation. Close ends it; nothing is shown
// afterwards. Its methods may be called from several goroutines.
type View interface {
	event.Sink
	// Write shows text that is no event, such as a log line.
	io.Writer
	Close()
}

// Style is what a terminal can show.
type Style struct {
	Colour  bool
	Unicode bool
}

// ascii writes our own signs in letters that every terminal has; what others
// wrote stays as they did.
var ascii = strings.NewReplacer("…", "...", "→", "->")

// Text returns text as the terminal can show it. All text for people passes through
// here or through Writer, which uses it: hosts, registries and clusters write parts of
// that text, and none of them steers the terminal. Of escape sequences only our own
// colours pass.
func (s Style) Text(text string) string {
	if !s.Unicode {
		text = ascii.Replace(text)
	}
	if !s.Colour {
		return Visible(text)
	}
	var b strings.Builder
	for {
		at := colours.FindStringIndex(text)
		if at == nil {
			break
		}
		b.WriteString(Visible(text[:at[0]]) + text[at[0]:at[1]])
		text = text[at[1]:]
	}
	return b.String() + Visible(text)
}

// Writer returns a writer to w that writes what Text returns. A sign must come in one
// piece.
func (s Style) Writer(w io.Writer) io.Writer { return styled{w, s} }

type styled struct {
	w     io.Writer
	style Style
}

func (s styled) Write(b []byte) (int, error) {
	if _, err := io.WriteString(s.w, s.style.Text(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// StyleOf reads from the environment what a terminal can show: NO_COLOR, TERM
// and the locale.
func StyleOf(getenv func(string) string) Style {
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

// Options are for showing an operation to people.
type Options struct {
	Style Style
	// Debug shows the output of programs and steps that had nothing to do.
	Debug bool
	// Plan, if there is one, says how much there is to do.
	Plan *plan.Plan
	// Size answers the terminal's columns and rows; nil is no terminal.
	Size func() (columns, rows int)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Frames says when to draw; nil is ten times a second.
	Frames <-chan time.Time
}

func (o *Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// timed gives an event from before an operation, which no journal has stamped,
// its time.
func (o *Options) timed(e event.Event) event.Event {
	if e.Time.IsZero() {
		e.Time = o.now()
	}
	return e
}

// ForPeople is a live view where there is a terminal, else plain lines.
func ForPeople(w io.Writer, o Options) View {
	if o.Size != nil {
		return NewLive(w, o)
	}
	return NewPlain(w, o)
}

// Terminal answers how to ask f for its size, or nil if it is no terminal
// that can show a live view.
func Terminal(f *os.File, getenv func(string) string) func() (columns, rows int) {
	if !IsTerminal(f) || getenv("TERM") == "dumb" || getenv("TERM") == "" {
		return nil
	}
	return func() (int, int) { return TerminalSize(f) }
}
