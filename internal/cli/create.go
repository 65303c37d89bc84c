package cli

import (
	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
)

func newCreateCommand(children ...*cobra.Command) *cobra.Command {
	cmd := program.NewParentCommand("create", "Create a cluster or a file")
	cmd.AddCommand(children...)
	return cmd
}
