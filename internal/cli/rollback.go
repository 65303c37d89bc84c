package cli

import (
	"context"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
)

func newRollbackCommand(c operationCommand) *cobra.Command {
	var (
		allowRemoval bool
		r            lifecycle.RollbackRequest
	)
	cmd := &cobra.Command{
		Use:   "rollback [NAME]",
		Short: "Roll back a cluster's unfinished operation",
		Long: `Rolls back the latest operation that failed or was interrupted. Slipway shows the
plan of the rollback and asks for confirmation. The rollback of a create removes
everything that it made. The rollback of an upgrade restores the previous version:
first on workers, then on control planes one at a time, then for the components
in the cluster. Data written to the cluster meanwhile is kept. A completed upgrade
cannot be rolled back.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if r.Name, err = c.clusters.chooseCluster(cmd.Context(), args); err != nil {
				return err
			}
			do := func(ctx context.Context, svc planner, progress event.Sink) (lifecycle.Prepared, error) {
				return svc.PrepareRollback(ctx, r, progress)
			}
			return c.runner.runOperation(cmd.Context(),
				operation{prepare: do, isNamedByUser: len(args) > 0, allowRemoval: allowRemoval, brief: true})
		},
	}
	addAllowRemovalFlag(cmd, &allowRemoval)
	addDrainFlags(cmd, &r.Removal, 0)
	addOptionFlags(cmd, &r.Options)
	return cmd
}
