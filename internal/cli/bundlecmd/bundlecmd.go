// Package bundlecmd is the command `slipway bundle`: build, inspect, verify.
package bundlecmd

import (
	"io"

	"github.com/spf13/cobra"
)

// Streams are where a command reads and writes: Out is data, Err is talk.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// New makes the command.
func New(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bundle",
		Aliases: []string{"artifact"},
		Short:   "Build, inspect and verify bundles",
	}
	cmd.SetOut(s.Out)
	cmd.SetErr(s.Err)
	return cmd
}
