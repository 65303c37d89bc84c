package view

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/internal/bytesize"
)

// Where names a task and its host: "drain node on w2". Without a host, which
// means the manager, it returns the title alone: "build bundle".
func Where(title, host string) string {
	if host == "" {
		return title
	}
	return title + " on " + host
}

// Duration formats a time span for people: "0.4s", "12.3s", "4m05s", "1h02m".
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0.0s"
	case d < time.Minute-50*time.Millisecond:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	d = d.Round(time.Minute)
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// FormatAge formats how long ago something happened: "12s", "5m", "3h", "9d".
func FormatAge(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// formatAmount formats n of a unit for people; the unit "" means bytes.
func formatAmount(n int64, unit string) string {
	if unit == "" || unit == "bytes" {
		return bytesize.Format(n)
	}
	return fmt.Sprintf("%d %s", n, unit)
}

// PrintableLine returns a line of a program's output without characters and escape
// sequences that would control the terminal.
func PrintableLine(s string) string {
	return strings.TrimRight(strings.Repeat(" ", countIndent(s))+oneLine(s), " ")
}

func countIndent(s string) int { return len(s) - len(strings.TrimLeft(s, " ")) }

// escapeSequences matches the escape sequences that programs use for colours.
var escapeSequences = regexp.MustCompile(`\x1b\[[0-9;?]*[ -/]*[@-~]`)

// oneLine returns s as a single line without characters and escape sequences that would
// control the terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			return ' '
		case !strconv.IsPrint(r):
			return -1
		}
		return r
	}, strings.TrimSpace(escapeSequences.ReplaceAllString(s, "")))
}
