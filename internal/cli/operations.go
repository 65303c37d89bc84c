package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/event"
)

// operationsCommand holds what the commands of "operations" need.
type operationsCommand struct {
	*console
	clusters  *clusterChooser
	open      opener[operationReader]
	openState opener[clusterReader]
}

func newOperationsCommand(c operationsCommand) *cobra.Command {
	cmd := program.NewParentCommand("operations", "List, show and watch operations", "operation", "ops")
	cmd.AddCommand(newOperationsListCommand(c), newOperationsShowCommand(c), newOperationsLogsCommand(c), newOperationsWatchCommand(c))
	return cmd
}

// forwardEvents passes an operation's events to a sink.
func (c operationsCommand) forwardEvents(ctx context.Context, svc operationReader, id string, follow bool, to event.Sink) error {
	err := svc.Events(ctx, id, follow, func(e event.Event) error { to.Emit(e); return nil })
	if err != nil && ctx.Err() != nil {
		return &exitError{code: exitInterrupted} // no longer watched; nothing was stopped
	}
	return err
}

// completeOperations completes the ids of operations.
func (c operationsCommand) completeOperations(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	svc, err := c.open(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list, err := svc.Operations(cmd.Context(), "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []string
	for _, o := range list {
		ids = append(ids, fmt.Sprintf("%s\t%s %s", o.Name, o.Spec.ClusterRef.Name, strings.ToLower(string(o.Status.State))))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
