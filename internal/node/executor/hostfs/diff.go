//go:build linux

package hostfs

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	maxDiff     = 64 << 10 // size limit of a returned diff, in bytes
	maxDiffText = 1 << 20  // size limit of a compared text, in bytes
	maxEdits    = 500      // beyond it, the middle is shown as completely replaced
	diffContext = 3        // unchanged lines around a change
)

// edit is a line of a comparison: kept ' ', deleted '-' or added '+'.
type edit struct {
	op   byte
	text string
}

// UnifiedDiff returns the unified diff of two texts, "" if they are equal or not text. A
// missing path is given as /dev/null.
func UnifiedDiff(from, to string, a, b []byte) string {
	if bytes.Equal(a, b) || !isText(a) || !isText(b) {
		return ""
	}
	edits := compareLines(splitLines(a), splitLines(b))
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", from, to)
	writeHunks(&out, edits)
	if out.Len() > maxDiff {
		const note = "\n[… the rest of the diff is left out]\n"
		cut := out.String()[:maxDiff-len(note)]
		return strings.ToValidUTF8(cut[:strings.LastIndexByte(cut, '\n')+1], "") + note[1:]
	}
	return out.String()
}

func isText(b []byte) bool {
	return len(b) <= maxDiffText && utf8.Valid(b) && bytes.IndexByte(b, 0) < 0
}

// splitLines keeps line ends, so that a missing one at the end is a
// difference.
func splitLines(b []byte) []string {
	var out []string
	for l := range strings.Lines(string(b)) {
		out = append(out, l)
	}
	return out
}

// compareLines returns a shortest edit script, except for texts that differ very much.
func compareLines(a, b []string) []edit {
	var head, tail []edit
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		head = append(head, edit{' ', a[0]})
		a, b = a[1:], b[1:]
	}
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	for _, l := range a[len(a)-n:] {
		tail = append(tail, edit{' ', l})
	}
	a, b = a[:len(a)-n], b[:len(b)-n]
	return append(append(head, myers(a, b)...), tail...)
}

// myers implements E. Myers, "An O(ND) Difference Algorithm and Its Variations", 1986.
func myers(a, b []string) []edit {
	limit := min(len(a)+len(b), maxEdits)
	v := make([]int, 2*limit+2)
	at := func(k int) *int { return &v[k+limit] }
	var trace [][]int
	for d := 0; d <= limit; d++ {
		trace = append(trace, append([]int(nil), v...))
		for k := -d; k <= d; k += 2 {
			x := 0
			switch {
			case d == 0:
			case k == -d || k != d && *at(k - 1) < *at(k + 1):
				x = *at(k + 1)
			default:
				x = *at(k - 1) + 1
			}
			for x < len(a) && x-k < len(b) && x-k >= 0 && a[x] == b[x-k] {
				x++
			}
			*at(k) = x
			if x >= len(a) && x-k >= len(b) {
				return backtrack(a, b, trace, limit)
			}
		}
	}
	var out []edit
	for _, l := range a {
		out = append(out, edit{'-', l})
	}
	for _, l := range b {
		out = append(out, edit{'+', l})
	}
	return out
}

// backtrack walks the recorded frontiers from the end to the start.
func backtrack(a, b []string, trace [][]int, limit int) []edit {
	var reversed []edit
	x, y := len(a), len(b)
	for d := len(trace) - 1; d > 0; d-- {
		v := trace[d]
		k := x - y
		down := k == -d || k != d && v[k-1+limit] < v[k+1+limit]
		from := k - 1
		if down {
			from = k + 1
		}
		px := v[from+limit]
		py := px - from
		for x > px && y > py && (down && y > py+1 || !down && x > px+1) {
			x, y = x-1, y-1
			reversed = append(reversed, edit{' ', a[x]})
		}
		if down {
			y--
			reversed = append(reversed, edit{'+', b[y]})
		} else {
			x--
			reversed = append(reversed, edit{'-', a[x]})
		}
	}
	for x > 0 {
		x--
		reversed = append(reversed, edit{' ', a[x]})
	}
	out := make([]edit, len(reversed))
	for i, e := range reversed {
		out[len(reversed)-1-i] = e
	}
	return out
}

// writeHunks writes changes with the lines around them.
func writeHunks(out *strings.Builder, edits []edit) {
	for i := 0; i < len(edits); {
		if edits[i].op == ' ' {
			i++
			continue
		}
		start, end, quiet := max(0, i-diffContext), i, 0
		for end < len(edits) && quiet <= 2*diffContext {
			if edits[end].op == ' ' {
				quiet++
			} else {
				quiet = 0
			}
			end++
		}
		end -= max(0, quiet-diffContext)
		writeHunk(out, edits, start, end)
		i = end
	}
}

func writeHunk(out *strings.Builder, edits []edit, start, end int) {
	count := func(edits []edit, op byte) (n int) {
		for _, e := range edits {
			if e.op == ' ' || e.op == op {
				n++
			}
		}
		return n
	}
	span := func(op byte) string {
		first, n := count(edits[:start], op)+1, count(edits[start:end], op)
		if n == 0 {
			first-- // the line before, as in GNU diff
		}
		if n == 1 {
			return fmt.Sprint(first)
		}
		return fmt.Sprintf("%d,%d", first, n)
	}
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span('-'), span('+'))
	for _, e := range edits[start:end] {
		out.WriteByte(e.op)
		out.WriteString(e.text)
		if !strings.HasSuffix(e.text, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}
