package cli

import (
	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
)

func newOperationsLogsCommand(c operationsCommand) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "logs ID", Short: "Show the log of an operation",
		Long: `Shows the complete log of an operation, including the output of programs. If a
step on a host printed more than a megabyte, only the beginning and the end are shown.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: c.completeOperations,
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := c.open(cmd.Context())
			if err != nil {
				return err
			}
			var v view.View = view.NewPlain(c.Out, view.Options{Style: c.outStyle(), Debug: true, Now: c.env.Now})
			if c.format != view.Text {
				v = view.NewEventView(c.Out, c.Err, c.format)
			}
			defer v.Close()
			return c.forwardEvents(cmd.Context(), svc, args[0], follow, v)
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, "continue until the operation ends")
	return cmd
}
