package cli

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
)

// newTestConsole returns a console without a terminal, whose outputs both go to out.
func newTestConsole(t *testing.T, out io.Writer) *console {
	t.Helper()
	env := Env{Getenv: func(string) string { return "" }, Now: func() time.Time { return epoch }}
	return &console{
		Streams: Streams{In: strings.NewReader(""), Out: out, Err: out}, env: env, format: view.Text, logs: &logWriter{w: out},
	}
}

// newOpener returns an opener of a part of the service that a test replaces.
func newOpener[T any](part T) opener[T] {
	return func(context.Context) (T, error) { return part, nil }
}

// runCommand runs a command alone, without the program's root command.
func runCommand(t *testing.T, cmd *cobra.Command, args ...string) error {
	t.Helper()
	cmd.SetArgs(args)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	return cmd.ExecuteContext(t.Context())
}
