//go:build linux

package hostfs

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
)

func TestUnifiedDiff_ShowsChangesWithContext(t *testing.T) {
	long := strings.Repeat("same\n", 10)
	for _, c := range []struct{ name, reason, from, a, b, want string }{
		{"equal", "nothing to show", "/f", "a\n", "a\n", ""},
		{"binary", "not text", "/f", "a\x00", "b", ""},
		{"create", "every line is new", "/dev/null", "", "a\nb\n", "--- /dev/null\n+++ /f\n@@ -0,0 +1,2 @@\n+a\n+b\n"},
		{
			"change", "three lines around it", "/f", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n",
			"--- /f\n+++ /f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n",
		},
		{
			"two hunks", "far apart", "/f", "a\n" + long + "b\n", "A\n" + long + "B\n",
			"--- /f\n+++ /f\n@@ -1,4 +1,4 @@\n-a\n+A\n same\n same\n same\n@@ -9,4 +9,4 @@\n same\n same\n same\n-b\n+B\n",
		},
		{
			"no newline", "the missing end is a difference", "/f", "a", "a\n",
			"--- /f\n+++ /f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, UnifiedDiff(c.from, "/f", []byte(c.a), []byte(c.b))); diff != "" {
				t.Errorf("%s:\n%s", c.reason, diff)
			}
		})
	}
	big := UnifiedDiff("/f", "/f", nil, bytes.Repeat([]byte("line of text\n"), 20000))
	if len(big) > maxDiff || !strings.HasSuffix(big, "left out]\n") {
		t.Errorf("a long diff has %d bytes and ends in %q", len(big), big[len(big)-40:])
	}
}

// patch applies an edit script's two sides.
func sides(edits []edit) (a, b string) {
	for _, e := range edits {
		if e.op != '+' {
			a += e.text
		}
		if e.op != '-' {
			b += e.text
		}
	}
	return a, b
}

func FuzzCompare(f *testing.F) {
	f.Add("a\nb\nc\n", "b\nc\nd\n")
	f.Add("", "x")
	f.Add("x\ny", "x\ny\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		edits := compareLines(splitLines([]byte(a)), splitLines([]byte(b)))
		gotA, gotB := sides(edits)
		if gotA != a || gotB != b {
			t.Errorf("compare(%q, %q) gives back %q and %q", a, b, gotA, gotB)
		}
		UnifiedDiff("/a", "/b", []byte(a), []byte(b))
	})
}

func TestSetBlock_ChangesOnlyItsOwnLines(t *testing.T) {
	mark := func(lines string) string { return "# BEGIN slipway x\n" + lines + "# END slipway x\n" }
	for _, c := range []struct {
		name, reason, text string
		lines              []string
		want               string
	}{
		{"into nothing", "the file is new", "", []string{"a"}, mark("a\n")},
		{"at the end", "there is none yet", "1\n2\n", []string{"a"}, "1\n2\n" + mark("a\n")},
		{"no newline", "the last line gets its end", "1", []string{"a"}, "1\n" + mark("a\n")},
		{"in place", "others' lines stay around it", "1\n" + mark("a\n") + "2", []string{"b", "c"}, "1\n" + mark("b\nc\n") + "2"},
		{
			"other block", "only the named one is ours", "# BEGIN slipway y\n# END slipway y\n",
			[]string{"a"},
			"# BEGIN slipway y\n# END slipway y\n" + mark("a\n"),
		},
		{"remove", "no lines, no block", "1\n" + mark("a\n") + "2", nil, "1\n2"},
		{"remove nothing", "the file stays as it is", "1", nil, "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := setBlock([]byte(c.text), "x", c.lines)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("%s:\n%s", c.reason, diff)
			}
		})
	}
	if _, err := setBlock([]byte("# BEGIN slipway x\nmine\n"), "x", nil); err == nil {
		t.Error("a block without an end would have taken the rest of the file")
	}
}

func FuzzSetBlock(f *testing.F) {
	f.Add("127.0.0.1 localhost\n", "10.0.0.1 a")
	f.Add("no end", "x")
	f.Add("# BEGIN slipway n\n# END slipway n\n", "y")
	f.Fuzz(func(t *testing.T, text, line string) {
		if checkLines(op.Block{Name: "n", Lines: []string{line}}) != nil {
			return
		}
		plain, err := setBlock([]byte(text), "n", nil)
		if err != nil {
			return
		}
		with, err := setBlock([]byte(text), "n", []string{line})
		if err != nil {
			t.Fatal(err)
		}
		again, err := setBlock(with, "n", []string{line})
		if err != nil || !bytes.Equal(with, again) {
			t.Errorf("writing %q twice: %q, then %q (%v)", line, with, again, err)
		}
		without, err := setBlock(with, "n", nil)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(without, plain) && !bytes.Equal(without, append(plain, '\n')) && !strings.Contains(text, "slipway n") {
			t.Errorf("%q became %q", plain, without)
		}
	})
}
