package cli

import (
	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
)

// cancelCommand holds what "cancel" needs.
type cancelCommand struct {
	*console
	clusters *clusterChooser
	open     opener[operationReader]
}

func newCancelCommand(c cancelCommand) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel [NAME]",
		Short: "Stop a cluster's running operation",
		Args:  cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			svc, name, err := openForCluster(ctx, c.clusters, c.open, args)
			if err != nil {
				return err
			}
			progress := event.SinkFunc(func(event.Event) {
				c.printMessage("Stopping the operation on cluster %s: waiting for it to reach a safe point.", name)
			})
			if err := svc.Cancel(ctx, name, progress); err != nil {
				return err
			}
			if c.format != view.Text {
				return view.WriteData(c.Out, c.format, map[string]string{"cluster": name, "outcome": string(event.Cancelled)})
			}
			c.printMessage("Stopped.\nNext: slipway resume %s\nRollback: slipway rollback %s", name, name)
			return nil
		},
	}
}
