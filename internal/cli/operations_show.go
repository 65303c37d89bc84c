package cli

import (
	"io"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
)

func newOperationsShowCommand(c operationsCommand) *cobra.Command {
	var failed, critical bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show an operation and its steps",
		Long: `Shows an operation: its steps, the slowest steps, and the failures with their
causes. ID can be a unique prefix of the operation's id.

With --critical-path, shows the chain of steps that determined the duration of the
operation: each step began when the previous step ended.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: c.completeOperations,
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := c.open(cmd.Context())
			if err != nil {
				return err
			}
			o, err := svc.Operation(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var h view.History
			if err := svc.Events(cmd.Context(), o.Name, false, func(e event.Event) error { h.RecordEvent(e); return nil }); err != nil {
				return err
			}
			switch {
			case failed:
				return c.writeResult(h.FailedSteps(), func(w io.Writer) error { return view.WriteFailedSteps(w, o, h.FailedSteps()) })
			case critical:
				return c.writeResult(h.CriticalPath(), func(w io.Writer) error { return view.WriteCriticalPath(w, o, &h) })
			}
			return c.writeResult(o, func(w io.Writer) error { return view.WriteOperation(w, o, &h) })
		},
	}
	cmd.Flags().BoolVar(&failed, "failed", false, "show the failures, with output and remedies")
	cmd.Flags().BoolVar(&critical, "critical-path", false, "show the chain of steps that determined the duration")
	cmd.MarkFlagsMutuallyExclusive("failed", "critical-path")
	return cmd
}
