package cli

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	kinds "slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/records"
)

func newOperationsWatchCommand(c operationsCommand) *cobra.Command {
	return &cobra.Command{
		Use: "watch [ID|NAME]", Short: "Watch a running operation",
		Long: `Shows the progress of an operation as in the terminal that started it. Give the ID
of an operation, or the NAME of a cluster for its latest operation. Ctrl-C stops
watching; it does not stop the operation. The command ends with the exit code of the
operation.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.completeOperationsAndClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			svc, err := c.open(ctx)
			if err != nil {
				return err
			}
			id, err := c.findOperation(ctx, svc, args)
			if err != nil {
				return err
			}
			o, err := svc.Operation(ctx, id)
			if err != nil {
				return err
			}
			return c.watchOperation(ctx, svc, o)
		},
	}
}

// watchOperation shows an operation until it ends, and its result.
func (c operationsCommand) watchOperation(ctx context.Context, svc operationReader, o *v1alpha1.Operation) error {
	v := c.newView(nil)
	defer v.Close()
	var (
		h     view.History
		first time.Time
		last  event.Event
	)
	err := c.forwardEvents(ctx, svc, o.Name, true, event.SinkFunc(func(e event.Event) {
		h.RecordEvent(e)
		if first.IsZero() {
			first = e.Time
		}
		last = e
		v.Emit(e)
	}))
	v.Close()
	res := &lifecycle.Result{Operation: o.Name, Cluster: o.Spec.ClusterRef.Name, Outcome: last.Outcome, Duration: last.Time.Sub(first)}
	for _, r := range h.FailedSteps() {
		f := cmp.Or(r.Failure, &event.Failure{})
		res.Failures = append(res.Failures, lifecycle.HostFailure{Host: r.Host, Task: r.Task, Title: r.Title, Failure: *f})
	}
	ending := view.Ending{Result: res, Kind: kinds.Kind(o.Spec.Kind), Style: c.errStyle()}
	switch code := exitCodeForOutcome(last.Outcome); {
	case errors.Is(err, records.ErrNoEnd):
		c.printMessage("Operation %s is no longer running: its process was killed.", o.Name)
		ending.Onward(c.Err)
		return &exitError{code: exitFailed}
	case err != nil:
		return err
	case code != exitDone:
		ending.Failed(c.Err)
		return &exitError{code: code}
	}
	c.printMessage("%s %s.", o.Name, last.Outcome)
	return nil
}

// findOperation returns the named operation, or the latest operation of the named
// cluster.
func (c operationsCommand) findOperation(ctx context.Context, svc operationReader, args []string) (string, error) {
	if len(args) > 0 {
		state, err := c.openState(ctx)
		if err != nil {
			return "", err
		}
		list, err := state.Clusters(ctx)
		if err != nil {
			return "", err
		}
		if !containsCluster(list, args[0]) {
			return args[0], nil
		}
	}
	name, err := c.clusters.chooseCluster(ctx, args)
	if err != nil {
		return "", err
	}
	list, err := svc.Operations(ctx, name)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", newProblem(idNoOperation, "", "cluster %s has no operations", name)
	}
	return list[0].Name, nil
}

// completeOperationsAndClusters completes the argument of watch: an operation or a
// cluster.
func (c operationsCommand) completeOperationsAndClusters(cmd *cobra.Command, args []string, begin string) ([]string,
	cobra.ShellCompDirective,
) {
	clusters, directive := c.clusters.completeNames(cmd, args, begin)
	ids, more := c.completeOperations(cmd, args, begin)
	return append(clusters, ids...), directive | more
}
