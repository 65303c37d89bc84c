package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/cli/view"
)

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
