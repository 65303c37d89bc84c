//go:build !linux

package sandboxcmd

import (
	"runtime"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/sandbox"
)

// addCommands takes every command and refuses it.
func addCommands(cmd *cobra.Command, _ program.Program) {
	cmd.DisableFlagParsing, cmd.Args = true, cobra.ArbitraryArgs
	cmd.RunE = func(*cobra.Command, []string) error {
		return diag.List{{
			ID: sandbox.IDNeedsLinux, Severity: diag.Error,
			Message: "sandboxes need Linux; this is " + runtime.GOOS,
			Hint:    "run it on a Linux host, or in a Linux virtual machine",
		}}
	}
}
