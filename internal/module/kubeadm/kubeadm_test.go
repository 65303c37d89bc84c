package kubeadm

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Words of a unit file: systemd.syntax(7) removes quotes and backslashes,
// systemd.service(5) replaces $ and %.
func TestQuoteFlags_FollowsSystemdRules(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		args         map[string]string
		want         string
	}{
		{"none", "nothing to add", nil, ""},
		{"sorted", "the same file gives the same unit", map[string]string{"v": "4", "a": "b"}, ` "--a=b" "--v=4"`},
		{"spaces and quotes", "one word each", map[string]string{"x": `a "b" c`}, ` "--x=a \"b\" c"`},
		{"dollar and per cent", "neither variable nor specifier", map[string]string{"x": "$HOME 100%h"}, ` "--x=$$HOME 100%%h"`},
		{"backslash and line", "systemd reads no escape and no second line", map[string]string{"x": "a\\n\nb"}, ` "--x=a\\n\nb"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := quoteFlags(tc.args); got != tc.want {
				t.Errorf("got %s, want %s: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestMergeArgs_LaterMapsOverride(t *testing.T) {
	got := mergeArgs(map[string]string{"feature-gates": "A=true", "b": "1"}, map[string]string{"feature-gates": "A=false", "a": "2"})
	want := []any{object{"name": "a", "value": "2"}, object{"name": "b", "value": "1"}, object{"name": "feature-gates", "value": "A=false"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("arguments of the user override, and all are sorted (-want +got):\n%s", d)
	}
}

// A bootstrap token is [a-z0-9]{6}.[a-z0-9]{16}.
func TestRandomText_IsValidInToken(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		got, err := randomText(16)
		if err != nil || !regexp.MustCompile(`^[a-z0-9]{16}$`).MatchString(got) || seen[got] {
			t.Fatalf("got %q, %v", got, err)
		}
		seen[got] = true
	}
}
