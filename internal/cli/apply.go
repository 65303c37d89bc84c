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
	var change changeFlags
	var (
		file                 string
		allowRemoval, forget bool
		removal              lifecycle.Removal
		rollout              lifecycle.Rollout
		noRevert             bool
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
			how := lifecycle.Request{Forget: forget, Removal: removal, Rollout: rollout, KeepFailed: noRevert}
			o, err := c.newOperation(cmd.Context(), file, args, how, change)
			if err != nil {
				return err
			}
			o.allowRemoval = allowRemoval
			return c.runner.runOperation(cmd.Context(), o)
		},
	}
	addFileFlag(cmd, &file, "a cluster file or a saved plan; - is standard input")
	addLeavingHostFlags(cmd, &allowRemoval, &forget, &removal)
	addMaxUnavailableFlag(cmd, &rollout)
	cmd.Flags().BoolVar(&noRevert, "no-revert", false, "do not roll back new settings when a node does not become healthy")
	change.addFlags(cmd)
	return cmd
}

// newOperation returns the operation of apply: for a cluster file, for a saved plan, or
// without a file for the cluster's saved state. how has the options for hosts that
// leave the cluster and for the rollout.
func (c applyCommand) newOperation(
	ctx context.Context, file string, args []string, how lifecycle.Request, change changeFlags,
) (o operation, err error) {
	if file == "" {
		r, err := c.requests.newRequest(ctx, lifecycle.Apply, "", args, change)
		r.Forget, r.Removal, r.Rollout, r.KeepFailed = how.Forget, how.Removal, how.Rollout, how.KeepFailed
		o.prepare = prepareRequest(r)
		return o, err
	}
	data, dir, err := c.files.readInput(ctx, file)
	if err != nil {
		return o, err
	}
	saved, err := plan.Decode(data)
	if err == nil {
		if len(args) > 0 && args[0] != saved.Cluster {
			return o, newProblem(idNameMismatch, "leave out the name, or give the right plan",
				"%s is a plan for cluster %s, not %s", displayFileName(file), saved.Cluster, args[0])
		}
		o.prepare = func(ctx context.Context, svc planner, progress event.Sink) (lifecycle.Prepared, error) {
			return svc.PrepareSaved(ctx, saved, change.setIn(how), progress)
		}
		return o, nil
	}
	if !errors.Is(err, plan.ErrNotAPlan) {
		return o, newProblem(idPlanChanged, "create a new plan: slipway plan -f FILE --out PLAN", "%s: %v", displayFileName(file), err)
	}
	d, err := c.files.loadCluster(ctx, file, data, dir)
	if err != nil {
		return o, err
	}
	if len(args) > 0 && args[0] != d.Cluster.Name {
		return o, newProblem(idNameMismatch, "leave out the name, or give the right file",
			"%s describes cluster %s, not %s", displayFileName(file), d.Cluster.Name, args[0])
	}
	r := newFileRequest(lifecycle.Apply, d, change)
	r.Forget, r.Removal, r.Rollout, r.KeepFailed = how.Forget, how.Removal, how.Rollout, how.KeepFailed
	o.prepare, o.file = prepareRequest(r), file
	return o, nil
}
