// Package sandboxcmd is the command `slipway sandbox`: machines on this host
// for trying and testing.
package sandboxcmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
)

// An ExitError says that a program in a machine ended with another status
// than 0, which this program shall hand on without a word.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("the program ended with status %d", e.Code) }

// New makes the command.
func New(p program.Program) *cobra.Command {
	cmd := program.Parent("sandbox", "Machines on this Linux host, for trying and testing")
	cmd.Long = `Makes machines on this Linux host: each has systemd, sshd, an address and a
disk of its own, and is up in about a second. They need root, and no
hypervisor or container engine.`
	addCommands(cmd, p)
	return cmd
}
