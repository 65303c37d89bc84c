package view

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
)

// paint adds ANSI colours if it is true.
type paint bool

const (
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// colours matches the escape sequences that paint.in writes.
var colours = regexp.MustCompile(`\x1b\[(?:0|` + strings.Join([]string{bold, faint, red, green, yellow, cyan}, "|") + `)m`)

func (p paint) in(code, s string) string {
	if !p || s == "" || code == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// colourOfOutcome returns the colour of an outcome.
func colourOfOutcome(o event.Outcome) string {
	switch o {
	case event.Failed:
		return red
	case event.Ignored, event.Cancelled:
		return yellow
	case event.Changed, event.Succeeded:
		return green
	}
	return faint
}

// isShownInLog reports whether an event gets a line in the log.
func isShownInLog(e event.Event, debug bool) bool {
	switch e.Type {
	case event.StepFinished:
		return debug || e.Outcome == event.Changed || e.Outcome == event.Failed || e.Outcome == event.Ignored || e.Outcome == event.Cancelled
	case event.StepRetry, event.Note:
		return true
	case event.StepOutput, event.StepStarted:
		return debug
	}
	return false
}

// columns holds the column widths that align the lines of a log.
type columns struct{ host, what int }

// maxHost and maxWhat limit the widths of the columns of hosts and titles.
const (
	maxHost = 32
	maxWhat = 48
)

// limitTo returns the columns limited to a terminal of a width.
func (c columns) limitTo(width int) columns {
	return columns{min(c.host, max(8, width/4)), min(c.what, max(8, width/3))}
}

// columnsFor returns columns wide enough for all steps of a plan.
func columnsFor(p *plan.Plan) columns {
	var c columns
	if p == nil {
		return c
	}
	for _, s := range p.Steps {
		c.host = min(maxHost, max(c.host, utf8.RuneCountInString(hostLabel(s.Host))))
		c.what = min(maxWhat, max(c.what, utf8.RuneCountInString(qualifyTitle(s.Module, s.Title))))
	}
	return c
}

// formatEvent formats one event as lines of a log:
// "  12.3s  w1  runtime: install containerd  changed (4.1s)". since is the
// start of the operation.
func (c *columns) formatEvent(e event.Event, was runningStep, since time.Time, p paint) []string {
	host, what := hostLabel(e.Host), oneLine(qualifyTitle(e.Module, cmp.Or(e.Title, was.title, e.Task)))
	if e.Type == event.Note {
		host, what = cmp.Or(e.Host, "-"), oneLine(e.Message)
	}
	c.host = min(maxHost, max(c.host, utf8.RuneCountInString(host)))
	if e.Type != event.Note {
		c.what = min(maxWhat, max(c.what, utf8.RuneCountInString(what)))
	}
	head := fmt.Sprintf("%7s  %s  ", Duration(e.Time.Sub(since)), padRight(host, c.host))
	head = p.in(faint, head)
	switch e.Type {
	case event.StepStarted:
		return []string{head + p.in(faint, padRight(what, c.what)+"  started")}
	case event.StepRetry:
		return []string{head + padRight(what, c.what) + "  " + p.in(yellow, fmt.Sprintf("attempt %d: %s", e.Attempt, oneLine(e.Message)))}
	case event.StepOutput:
		var out []string
		for l := range strings.Lines(e.Message) {
			out = append(out, head+p.in(faint, "| "+oneLine(l)))
		}
		return out
	case event.StepFinished:
		return formatFinished(e, was, head+padRight(what, c.what), p)
	}
	return []string{head + what}
}

func formatFinished(e event.Event, was runningStep, head string, p paint) []string {
	text := head + "  " + p.in(colourOfOutcome(e.Outcome), string(e.Outcome))
	if d := e.Time.Sub(was.start); d >= 100*time.Millisecond {
		text += p.in(faint, " ("+Duration(d)+")")
	}
	f := e.Failure
	if f == nil {
		return []string{text}
	}
	if e.Outcome == event.Skipped && f.CausedBy != "" {
		return []string{text + p.in(faint, ": "+f.CausedBy+" failed")}
	}
	out := []string{text + ": " + oneLine(f.Message)}
	if f.Remedy != "" {
		out = append(out, strings.Repeat(" ", 9)+"remedy: "+oneLine(f.Remedy))
	}
	return out
}

func qualifyTitle(module, title string) string {
	if module == "" {
		return title
	}
	return module + ": " + title
}

func padRight(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s)))
}

// truncateMiddle shortens s to n columns and keeps both ends, because names of hosts
// often have the same beginning.
func truncateMiddle(s string, n int, unicode bool) string {
	r := []rune(s)
	gap := ".."
	if unicode {
		gap = "…"
	}
	keep := n - utf8.RuneCountInString(gap)
	if len(r) <= n || keep < 2 {
		return truncate(s, n, unicode)
	}
	head := keep / 3
	return string(r[:head]) + gap + string(r[len(r)-keep+head:])
}

// truncate shortens s to n columns.
func truncate(s string, n int, unicode bool) string {
	if n <= 0 {
		return ""
	}
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	r := []rune(s)
	if unicode {
		return string(r[:n-1]) + "…"
	}
	return string(r[:max(0, n-2)]) + strings.Repeat(".", min(2, n))
}
