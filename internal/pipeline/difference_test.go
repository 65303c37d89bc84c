package pipeline

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/diff"

	"slipway.dev/slipway/internal/testutil/golden"
)

// checkAgainst compares a text with a golden that holds its difference to a base text.
// The golden names the base in its first line.
func checkAgainst(t *testing.T, path, name, base, got string) {
	t.Helper()
	change := difference(t, base, got)
	stored, err := os.ReadFile(path)
	if err == nil && !t.Failed() {
		_, old, _ := strings.Cut(string(stored), "\n")
		if whole, err := patch(base, old); err == nil && whole != got {
			t.Logf("%s\n%s", path, diff.Diff("want", []byte(whole), "got", []byte(got)))
		}
	}
	golden.Check(t, path, "# difference to "+name+"\n"+change)
}

// difference returns the hunks of a unified diff with one line of context. Line numbers
// would change with every new line, so a hunk names the task or operation that it changes.
// If the hunk fits more than one place there, its header counts them.
func difference(t *testing.T, base, text string) string {
	t.Helper()
	old := splitLines(base)
	var b strings.Builder
	next := 0 // the line after the previous hunk
	for _, h := range hunks(base, text) {
		places := h.places(old, next)
		n := slices.Index(places, h.at)
		if n < 0 {
			t.Fatalf("the hunk at line %d of the base has no place there", h.at)
		}
		b.WriteString("@@ " + h.label)
		if n > 0 {
			fmt.Fprintf(&b, " #%d", n+1)
		}
		b.WriteString("\n" + strings.Join(h.lines, ""))
		next = h.at + h.oldLines()
	}
	if whole, err := patch(base, b.String()); err != nil || whole != text {
		t.Fatalf("base and difference do not give the whole text: %v", err)
	}
	return b.String()
}

// patch applies the result of difference to its base.
func patch(base, change string) (string, error) {
	old := splitLines(base)
	var b strings.Builder
	next := 0
	hunks, err := parseHunks(change)
	if err != nil {
		return "", err
	}
	for _, h := range hunks {
		places := h.places(old, next)
		if h.nth >= len(places) {
			return "", fmt.Errorf("the hunk of %q has no place in the base", h.label)
		}
		at := places[h.nth]
		b.WriteString(strings.Join(old[next:at], ""))
		for _, line := range h.lines {
			if line[0] != '-' {
				b.WriteString(line[1:])
			}
		}
		next = at + h.oldLines()
	}
	return b.String() + strings.Join(old[next:], ""), nil
}

// A hunk is a changed part of a text. Each line begins with ' ', '-' or '+'.
type hunk struct {
	label   string // of the task or operation
	at, nth int    // line of the base; index among the places where the hunk fits
	lines   []string
}

func (h *hunk) oldLines() int {
	n := 0
	for _, line := range h.lines {
		if line[0] != '+' {
			n++
		}
	}
	return n
}

// firstChange returns the number of lines before the first change.
func (h *hunk) firstChange() int {
	return slices.IndexFunc(h.lines, func(line string) bool { return line[0] != ' ' })
}

// places returns the lines of the base, from a line on, where the hunk fits.
func (h *hunk) places(old []string, from int) []int {
	var out []int
	for at := from; at <= len(old); at++ {
		if h.fits(old, at) {
			out = append(out, at)
		}
	}
	return out
}

func (h *hunk) fits(old []string, at int) bool {
	i := at
	for _, line := range h.lines {
		if line[0] == '+' {
			continue
		}
		if i >= len(old) || old[i] != line[1:] {
			return false
		}
		i++
	}
	return labelAt(old, at+h.firstChange()) == h.label
}

var hunkHeader = regexp.MustCompile(`^@@ -(\d+)(,\d+)? `)

// hunks returns the differences of two texts.
func hunks(base, text string) []*hunk {
	old := splitLines(base)
	var out []*hunk
	lines := splitLines(string(diff.Diff("base", []byte(base), "text", []byte(text))))
	at := 0
	changed := func(i int) bool { return i < len(lines) && (lines[i][0] == '-' || lines[i][0] == '+') }
	var h *hunk
	for i := 3; i < len(lines); i++ { // after the names of the texts
		line := lines[i]
		if m := hunkHeader.FindStringSubmatch(line); m != nil {
			at, _ = strconv.Atoi(m[1])
			at, h = max(at-1, 0), nil
			continue
		}
		if changed(i) || changed(i-1) && i > 3 || changed(i+1) {
			if h == nil {
				h = &hunk{at: at}
				out = append(out, h)
			}
			h.lines = append(h.lines, line)
		} else {
			h = nil
		}
		if line[0] != '+' {
			at++
		}
	}
	for _, h := range out {
		h.label = labelAt(old, h.at+h.firstChange())
	}
	return out
}

var nthPlace = regexp.MustCompile(`^(.*) #(\d+)$`)

func parseHunks(change string) ([]*hunk, error) {
	var out []*hunk
	for _, line := range splitLines(change) {
		label, ok := strings.CutPrefix(line, "@@ ")
		if !ok && len(out) == 0 {
			return nil, errors.New("the difference does not begin with the label of a hunk")
		}
		if !ok {
			last := out[len(out)-1]
			last.lines = append(last.lines, line)
			continue
		}
		h := &hunk{label: strings.TrimSuffix(label, "\n")}
		if m := nthPlace.FindStringSubmatch(h.label); m != nil {
			n, _ := strconv.Atoi(m[2])
			h.label, h.nth = m[1], n-1
		}
		out = append(out, h)
	}
	return out, nil
}

// labelAt returns the id of the task that a line belongs to. Without a task, it returns
// the operation.
func labelAt(lines []string, at int) string {
	operation := ""
	for i := min(at, len(lines)-1); i >= 0; i-- {
		if task, ok := strings.CutPrefix(lines[i], "== "); ok {
			id, _, _ := strings.Cut(task, ":")
			return id
		}
		if o, ok := strings.CutPrefix(lines[i], "- "); ok && operation == "" {
			operation = strings.TrimSuffix(o, "\n")
		}
	}
	return operation
}

// splitLines keeps the line ends.
func splitLines(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	return lines[:len(lines)-1]
}

// TestDifference_GivesTheWholeTextWithItsBase: hunks need no line numbers, and a base that
// has changed elsewhere still fits.
func TestDifference_GivesTheWholeTextWithItsBase(t *testing.T) {
	base := "== a: first\n- file x\n    m\n    n\n    m\n    n\n    m\n== b: second\n    n\n    m\n    end\n"
	for _, tc := range []struct{ name, reason, text, want string }{
		{"equal", "nothing is stored", base, ""},
		{
			"everything is removed", "the label is that of the first line", "",
			"@@ a\n-" + strings.ReplaceAll(base[:len(base)-1], "\n", "\n-") + "\n",
		},
		{
			"repeated lines", "the label leads to the task, and the count to the place in the task",
			"== a: first\n- file x\n    m\n    n\n    m\n    o\n    m\n== b: second\n    n\n    m\n    end\n",
			"@@ a #2\n     m\n-    n\n+    o\n     m\n",
		},
		{
			"a task is removed", "the label is that of the removed task", base[:strings.Index(base, "== b")],
			"@@ b\n     m\n-== b: second\n-    n\n-    m\n-    end\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := difference(t, base, tc.text)
			if got != tc.want {
				t.Errorf("%s: got\n%s\nwant\n%s", tc.reason, got, tc.want)
			}
			whole, err := patch("== 0: before\n"+base, got)
			if want := "== 0: before\n" + tc.text; err != nil || whole != want {
				t.Errorf("with a new first line, the whole text is\n%s\nwant\n%s\n%v", whole, want, err)
			}
		})
	}
	if _, err := patch("another base\n", "@@ a\n-    mode: 1\n"); err == nil {
		t.Error("a difference to another base is accepted")
	}
}
