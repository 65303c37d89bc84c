//go:build !linux

package sandboxcmd

import (
	"runtime"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/sandbox"
)

// addCommands makes the command refuse all arguments.
func addCommands(cmd *cobra.Command, _ program.Program) {
	cmd.DisableFlagParsing, cmd.Args = true, cobra.ArbitraryArgs
	cmd.RunE = func(*cobra.Command, []string) error {
		return diag.List{{
			ID: sandbox.IDNeedsLinux, Severity: diag.Error,
			Message: "sandboxes require Linux, but this system is " + runtime.GOOS,
			Hint:    "run the command on a Linux host or in a Linux virtual machine",
		}}
	}
}
