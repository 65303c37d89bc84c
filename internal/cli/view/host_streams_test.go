package view

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPrefixedOutput_PrefixesWholeLines: the complete output of hosts is written, in
// whatever pieces it arrives.
func TestPrefixedOutput_PrefixesWholeLines(t *testing.T) {
	binary := make([]byte, 5*maxPart)
	for i, r := 0, rand.New(rand.NewPCG(1, 2)); i < len(binary); i++ {
		binary[i] = byte(r.Uint32())
	}
	long := strings.Repeat("0123456789abcdef", maxPart/16)
	for _, tc := range []struct {
		name, in string
		lines    int // of one piece or of several
		reason   string
	}{
		{"lines", "one\ntwo\r\n\nfour\n", 4, "a carriage return is a byte, too"},
		{"no newline at the end", "one\ntwo", 2, "a newline is added"},
		{"nothing", "", 0, "a host that says nothing has no line"},
		{"just fits", long + "\n", 1, "the line has the maximum length"},
		{"one more", long + "x\n", 1, "the line is one byte too long"},
		{"long", strings.Repeat(long, 3) + "\nshort\n", 2, "a line of several times that"},
		{"long without an end", strings.Repeat(long, 2), 1, "the last line is also split"},
		{"multi-byte characters", strings.Repeat("x→", maxPart) + "\n", 1, "no character is split"},
		{"binary", string(binary), bytes.Count(binary, []byte{'\n'}) + 1, "no text at all"},
	} {
		for _, size := range []int{1 << 20, maxPart, 4093} {
			var out bytes.Buffer
			w := NewPrefixedOutput([]string{"w1", "cp1"}, Style{}, false).NewWriter(&out, "w1")
			for rest := []byte(tc.in); len(rest) > 0; {
				n := min(size, len(rest))
				if got, err := w.Write(rest[:n]); got != n || err != nil {
					t.Fatalf("%s: %d of %d bytes, %v", tc.name, got, n, err)
				}
				rest = rest[n:]
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			var again strings.Builder
			lines := 0
			for line := range strings.Lines(out.String()) {
				text, first := strings.CutPrefix(line, "w1  | ")
				if first {
					if lines++; lines > 1 {
						again.WriteByte('\n')
					}
				} else if text, first = strings.CutPrefix(line, "w1  + "); !first {
					t.Fatalf("%s: %.40q has no host", tc.name, line)
				}
				again.WriteString(strings.TrimSuffix(text, "\n"))
				if strings.HasPrefix(tc.name, "signs") && strings.ToValidUTF8(text, "?") != text {
					t.Errorf("%s: %s", tc.name, tc.reason)
				}
			}
			want := strings.TrimSuffix(tc.in, "\n")
			if lines != tc.lines || again.String() != want {
				t.Errorf("%s, %d bytes at a time: %d lines of %d bytes, want %d of %d: %s", tc.name, size, lines,
					again.Len(), tc.lines, len(want), tc.reason)
			}
		}
	}
}

// TestPrefixedOutput_EscapesControlsOnTerminal checks the text on a terminal and
// elsewhere.
func TestPrefixedOutput_EscapesControlsOnTerminal(t *testing.T) {
	var out bytes.Buffer
	p := NewPrefixedOutput([]string{"w1", "cp1"}, Style{}, false)
	one, two := p.NewWriter(&out, "w1"), p.NewWriter(&out, "cp1")
	for _, s := range []string{"a", "b\nc"} {
		for _, w := range []interface{ Write([]byte) (int, error) }{one, two} {
			if _, err := w.Write([]byte(s)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("w1  | ab\ncp1 | ab\nw1  | c\n", out.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestCopyDisplay_ShowsProgressOfHosts: reading and then copying are shown, each with
// its own rate.
func TestCopyDisplay_ShowsProgressOfHosts(t *testing.T) {
	for _, tc := range []struct {
		name string
		size func() (int, int)
		want string
	}{
		{"elsewhere", nil, "reading 20 MiB, 2 MiB/s\ncopying 10 MiB of 30 MiB, 1 MiB/s\n"},
		{"terminal", func() (int, int) { return 80, 24 }, "\rreading 20 MiB, 2 MiB/s" +
			"\rcopying 0 B of 30 MiB, 0 B/s\rcopying 10 MiB of 30 MiB, 1 MiB/s\r" + strings.Repeat(" ", 33) + "\r"},
	} {
		var out bytes.Buffer
		now := epoch
		c := NewCopyDisplay(&out, Options{Size: tc.size, Now: func() time.Time { return now }})
		c.ShowRead(1)
		now = now.Add(10 * time.Second)
		c.ShowRead(20 << 20)
		now = now.Add(time.Second)
		c.ShowProgress("w1", CopyProgress{Done: 0, Total: 30 << 20})
		now = now.Add(10 * time.Second)
		c.ShowProgress("w1", CopyProgress{Done: 10 << 20, Total: 30 << 20})
		c.Close()
		if d := cmp.Diff(tc.want, out.String()); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, d)
		}
	}
}

// TestCopyDisplay_CountsFiles: for many small files, the progress is the number of files.
func TestCopyDisplay_CountsFiles(t *testing.T) {
	var out bytes.Buffer
	now := epoch
	c := NewCopyDisplay(&out, Options{Now: func() time.Time { return now }})
	for range 2 {
		now = now.Add(10 * time.Second)
		c.ShowProgress("w1", CopyProgress{Done: 1 << 20, Total: 2 << 20, Files: 300, AllFiles: 500})
	}
	now = now.Add(10 * time.Second)
	c.ShowProgress("w2", CopyProgress{Done: 2 << 20, Total: 2 << 20, Files: 500, AllFiles: 500})
	const want = "copying 300 of 500 files, 1 MiB of 2 MiB, 102.3 KiB/s\n" +
		"copying 300 of 500 files, 1 MiB of 2 MiB, 51.1 KiB/s\n" +
		"copying 800 of 1000 files, 3 MiB of 4 MiB, 102.3 KiB/s, 1 of 2 hosts done\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
