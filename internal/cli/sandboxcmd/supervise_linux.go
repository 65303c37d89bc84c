package sandboxcmd

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/sandbox"
)

// The program starts itself with the two commands below. Descriptor 3 is a pipe to
// the parent process.

func newSuperviseCommand(p program.Program) *cobra.Command {
	return &cobra.Command{
		Use: "supervise DIR MACHINE", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			log := slog.New(slog.NewTextHandler(p.Err, nil))
			return sandbox.Supervise(cmd.Context(), args[0], args[1], log, os.NewFile(3, "ready"))
		},
	}
}

func newBootCommand() *cobra.Command {
	return &cobra.Command{
		Use: "boot", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return sandbox.Boot(cmd.Context(), os.Stdin, os.NewFile(3, "failed"))
		},
	}
}
