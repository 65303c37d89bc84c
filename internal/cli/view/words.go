package view

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/internal/iec"
)

// Doing turns a task's title into what is being done: "join node" becomes
// "joining node".
func Doing(title string) string {
	verb, rest, _ := strings.Cut(title, " ")
	if verb == "" {
		return title
	}
	verb = gerund(strings.ToLower(verb[:1]) + verb[1:])
	if rest == "" {
		return verb
	}
	return verb + " " + rest
}

func gerund(verb string) string {
	const vowels = "aeiou"
	n := len(verb)
	vowel := func(i int) bool { return i >= 0 && i < n && strings.IndexByte(vowels, verb[i]) >= 0 }
	switch {
	case strings.HasSuffix(verb, "ing"):
		return verb
	case strings.HasSuffix(verb, "ie"):
		return verb[:n-2] + "ying"
	case strings.HasSuffix(verb, "e") && !strings.HasSuffix(verb, "ee"):
		return verb[:n-1] + "ing"
	case n >= 3 && !vowel(n-1) && vowel(n-2) && !vowel(n-3) && strings.IndexByte("wxy", verb[n-1]) < 0 && syllables(verb) == 1:
		return verb + verb[n-1:] + "ing" // set, run, put
	}
	return verb + "ing"
}

// syllables counts groups of vowels.
func syllables(word string) int {
	n, in := 0, false
	for _, r := range word {
		v := strings.ContainsRune("aeiouy", r)
		if v && !in {
			n++
		}
		in = v
	}
	return n
}

// Where is a task with its host: "joining node w2", "installing containerd on
// w2", "building the bundle".
func Where(title, host string) string {
	doing := Doing(title)
	switch {
	case host == "":
		return doing
	case strings.HasSuffix(doing, " node"), strings.HasSuffix(doing, " host"):
		return doing + " " + host
	}
	return doing + " on " + host
}

// Duration is a time span for people: "0.4s", "12.3s", "4m05s", "1h02m".
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

// Age is how long ago something was: "12s", "5m", "3h", "9d".
func Age(d time.Duration) string {
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

// amount is so much of a unit, for people; "" is bytes.
func amount(n int64, unit string) string {
	if unit == "" || unit == "bytes" {
		return iec.Bytes(n)
	}
	return fmt.Sprintf("%d %s", n, unit)
}

// Printable is a line of a program's output without what would steer the
// terminal.
func Printable(s string) string {
	return strings.TrimRight(strings.Repeat(" ", indent(s))+oneLine(s), " ")
}

func indent(s string) int { return len(s) - len(strings.TrimLeft(s, " ")) }

// sequences are those that programs colour their output with.
var sequences = regexp.MustCompile(`\x1b\[[0-9;?]*[ -/]*[@-~]`)

// oneLine keeps what a terminal would obey, and so a program's escape sequences, off
// the screen.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			return ' '
		case !strconv.IsPrint(r):
			return -1
		}
		return r
	}, strings.TrimSpace(sequences.ReplaceAllString(s, "")))
}
