// Package sandboxcmd is the command `slipway sandbox`: it manages machines on this
// host for tests.
package sandboxcmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
)

// An ExitError is the status of a program in a machine that is not 0. This program
// ends with the same status and prints nothing.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("the program ended with status %d", e.Code) }

// NewCommand returns the command.
func NewCommand(p program.Program) *cobra.Command {
	cmd := program.NewParentCommand("sandbox", "Manage test machines on this Linux host")
	cmd.Long = `Creates test machines on this Linux host. Each machine has its own systemd, sshd,
address and disk, and starts in about a second. The machines require root, but no
hypervisor or container engine.`
	addCommands(cmd, p)
	return cmd
}
