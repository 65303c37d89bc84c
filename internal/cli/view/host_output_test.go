package view

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/lifecycle/hostexec"
)

// TestHostOutput_KeepsExactBytes: JSON output contains the exact bytes that a host
// printed.
func TestHostOutput_KeepsExactBytes(t *testing.T) {
	full := strings.Repeat("x", maxHostOutput)
	b64 := base64.StdEncoding.EncodeToString
	for _, tc := range []struct {
		name, out, err string
		want           HostOutput
		reason         string
	}{
		{"text", "zwölf\x00\n", "e", HostOutput{Stdout: "zwölf\x00\n", Stderr: "e"}, "UTF-8 is unchanged"},
		{
			"binary", "\xff\xfe", "e",
			HostOutput{Stdout: b64([]byte("\xff\xfe")), Stderr: b64([]byte("e")), Encoding: "base64"},
			"no byte is replaced; one field describes both streams",
		},
		{"binary on stderr", "", "\x80", HostOutput{Stderr: b64([]byte("\x80")), Encoding: "base64"}, "one stream is enough"},
		{"incomplete character", "\xe2\x86", "", HostOutput{Stdout: b64([]byte("\xe2\x86")), Encoding: "base64"}, "the program printed it"},
		{"cut within a character", full[2:] + "→", "", HostOutput{Stdout: full[2:], Truncated: true}, "the limit cut it, so it remains text"},
		{"cut after a character", full[3:] + "→x", "", HostOutput{Stdout: full[3:] + "→", Truncated: true}, "everything up to the limit is kept"},
		{
			"cut binary", "\xff" + full, "",
			HostOutput{Stdout: b64([]byte("\xff" + full[1:])), Encoding: "base64", Truncated: true},
			"binary is cut anywhere",
		},
	} {
		var out, errw HostBuffer
		for _, w := range []struct {
			h *HostBuffer
			s string
		}{{&out, tc.out}, {&errw, tc.err}} {
			if n, err := w.h.Write([]byte(w.s)); n != len(w.s) || err != nil {
				t.Fatal(n, err)
			}
		}
		if d := cmp.Diff(tc.want, NewHostOutput(hostexec.HostResult{}, &out, &errw)); d != "" {
			t.Errorf("%s: %s (-want +got):\n%.400s", tc.name, tc.reason, d)
		}
	}
}
