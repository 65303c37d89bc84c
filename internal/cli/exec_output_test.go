package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/lifecycle"
)

// TestHostOutput_KeepsExactBytes: JSON output contains the exact bytes that a host
// printed.
func TestHostOutput_KeepsExactBytes(t *testing.T) {
	full := strings.Repeat("x", maxKept)
	b64 := base64.StdEncoding.EncodeToString
	for _, tc := range []struct {
		name, out, err string
		want           hostOutput
		reason         string
	}{
		{"text", "zwölf\x00\n", "e", hostOutput{Stdout: "zwölf\x00\n", Stderr: "e"}, "UTF-8 is unchanged"},
		{
			"binary", "\xff\xfe", "e",
			hostOutput{Stdout: b64([]byte("\xff\xfe")), Stderr: b64([]byte("e")), Encoding: "base64"},
			"no byte is replaced; one field describes both streams",
		},
		{"binary on stderr", "", "\x80", hostOutput{Stderr: b64([]byte("\x80")), Encoding: "base64"}, "one stream is enough"},
		{"incomplete character", "\xe2\x86", "", hostOutput{Stdout: b64([]byte("\xe2\x86")), Encoding: "base64"}, "the program printed it"},
		{"cut within a character", full[2:] + "→", "", hostOutput{Stdout: full[2:], Truncated: true}, "the limit cut it, so it remains text"},
		{"cut after a character", full[3:] + "→x", "", hostOutput{Stdout: full[3:] + "→", Truncated: true}, "everything up to the limit is kept"},
		{
			"cut binary", "\xff" + full, "",
			hostOutput{Stdout: b64([]byte("\xff" + full[1:])), Encoding: "base64", Truncated: true},
			"binary is cut anywhere",
		},
	} {
		var out, errw boundedBuffer
		for _, w := range []struct {
			h *boundedBuffer
			s string
		}{{&out, tc.out}, {&errw, tc.err}} {
			if n, err := w.h.Write([]byte(w.s)); n != len(w.s) || err != nil {
				t.Fatal(n, err)
			}
		}
		if d := cmp.Diff(tc.want, newHostOutput(lifecycle.HostResult{}, &out, &errw)); d != "" {
			t.Errorf("%s: %s (-want +got):\n%.400s", tc.name, tc.reason, d)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

// TestOutput_FailsIfNotWritten: a command fails if its output could not be written.
func TestOutput_FailsIfNotWritten(t *testing.T) {
	for _, args := range [][]string{
		{"exec", "prod@w1", "--", "true"},
		{"exec", "prod@all", "--", "true"},
		{"exec", "prod@all", "-o", string(view.JSON), "--", "true"},
		{"exec", "prod@all", "-o", string(view.YAML), "--", "true"},
		{"cp", "prod@w1:x", ".", "-o", string(view.JSON)},
	} {
		s := newTestTerminal(t, "")
		code := Main(t.Context(), args, Streams{In: s.stdin, Out: broken{}, Err: &s.err}, s.env,
			func(context.Context, Settings) (Service, error) {
				return service{&fake{Clusters: []string{"prod"}}}, nil
			})
		if code != exitFailed || !strings.Contains(s.err.String(), "writing the output: the disk is full") {
			t.Errorf("%v: exit code %d, %s", args, code, s.err.String())
		}
	}
}
