package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/plan"
)

// applyCommand holds what "apply" needs.
type applyCommand struct {
	operationCommand
	files *clusterFiles
}

func newApplyCommand(c applyCommand) *cobra.Command {
	var (
		file         string
		allowRemoval bool
		options      lifecycle.ApplyOptions
	)
	cmd := &cobra.Command{
		Use:   "apply [-f FILE|PLAN] [NAME]",
		Short: "Apply a cluster file or a saved plan",
		Long: `Changes only what differs from FILE. A cluster that does not exist is created.
Without a file, restores the cluster to its saved state. A saved plan is refused
if its changes would be different now; the difference is shown.

New hosts in FILE join the cluster. Hosts that are missing from FILE are drained,
reset and removed. Confirm a removal by typing the host's name (for several hosts,
the cluster's name), or with --allow-removal.

Settings that require a restart go to control planes one at a time, then to
workers. The next node starts when the previous node is healthy again. If a node
does not become healthy, all nodes get their previous settings back automatically.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := c.newOperation(cmd.Context(), file, args, options)
			if err != nil {
				return err
			}
			o.allowRemoval = allowRemoval
			return c.runner.runOperation(cmd.Context(), o)
		},
	}
	addFileFlag(cmd, &file, "a cluster file or a saved plan; - is standard input")
	addLeavingHostFlags(cmd, &allowRemoval, &options.Forget, &options.Removal)
	addMaxUnavailableFlag(cmd, &options.MaxUnavailable)
	cmd.Flags().BoolVar(&options.KeepFailed, "no-revert", false, "do not roll back new settings when a node does not become healthy")
	addOptionFlags(cmd, &options.Options)
	return cmd
}

// newOperation returns the operation of apply: for a cluster file, for a saved plan, or
// without a file for the cluster's saved state.
func (c applyCommand) newOperation(
	ctx context.Context, file string, args []string, options lifecycle.ApplyOptions,
) (o operation, err error) {
	if file == "" {
		name, err := c.clusters.chooseCluster(ctx, args)
		r := lifecycle.ApplyRequest{Subject: lifecycle.Subject{Name: name}, ApplyOptions: options}
		return operation{prepare: prepareRequest(r)}, err
	}
	data, dir, err := c.files.readInput(ctx, file)
	if err != nil {
		return o, err
	}
	saved, err := plan.Decode(data)
	switch {
	case err == nil:
		return newSavedPlanOperation(file, args, saved, options)
	case !errors.Is(err, plan.ErrNotAPlan):
		return o, newProblem(idPlanChanged, "create a new plan: slipway plan -f FILE --out PLAN", "%s: %v", displayFileName(file), err)
	}
	d, err := c.files.loadCluster(ctx, file, data, dir)
	if err != nil {
		return o, err
	}
	r := lifecycle.ApplyRequest{Subject: d.subject(), ApplyOptions: options}
	return operation{prepare: prepareRequest(r), file: file}, d.checkName(file, args)
}

// newSavedPlanOperation returns the operation of a saved plan.
func newSavedPlanOperation(
	file string, args []string, saved *plan.Plan, options lifecycle.ApplyOptions,
) (o operation, err error) {
	if len(args) > 0 && args[0] != saved.Cluster {
		return o, newProblem(idNameMismatch, "leave out the name, or give the right plan",
			"%s is a plan for cluster %s, not %s", displayFileName(file), saved.Cluster, args[0])
	}
	o.prepare = func(ctx context.Context, svc planner, progress event.Sink) (lifecycle.Prepared, error) {
		return svc.PrepareSaved(ctx, saved, options, progress)
	}
	return o, nil
}
