//go:build linux

package health

import (
	"strings"
	"testing"
)

func TestLastLines_ReturnsMostLikelyCause(t *testing.T) {
	for log, want := range map[string]string{
		"a\nE1123 \"command failed\" err=\"bad\"\nstopped": `E1123 "command failed" err="bad"`,
		"a\nb\n":                       "b",
		"":                             "",
		strings.Repeat("x", 500) + "y": strings.Repeat("x", 400) + "…",
	} {
		if got := LastLines(log); got != want {
			t.Errorf("of %q: %q, want %q", log, got, want)
		}
	}
}
