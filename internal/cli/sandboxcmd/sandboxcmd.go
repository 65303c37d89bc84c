// Package sandboxcmd is the command `slipway sandbox`: machines on this host
// for trying and testing.
package sandboxcmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Streams are where a command reads and writes: Out is data, Err is talk.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// An ExitError says that a program in a machine ended with another status
// than 0, which this program shall hand on without a word.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("the program ended with status %d", e.Code) }

// New makes the command.
func New(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Machines on this Linux host, for trying and testing",
		Long: `Makes machines on this Linux host: each has systemd, sshd, an address and a
disk of its own, and is up in about a second. They need root, and no
hypervisor or container engine.`,
	}
	cmd.SetIn(s.In)
	cmd.SetOut(s.Out)
	cmd.SetErr(s.Err)
	addCommands(cmd, s)
	return cmd
}
