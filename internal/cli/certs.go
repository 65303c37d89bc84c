package cli

import (
	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
)

func newCertsCommand(children ...*cobra.Command) *cobra.Command {
	cmd := program.NewParentCommand("certs", "Check, renew and rotate certificates")
	cmd.AddCommand(children...)
	return cmd
}
