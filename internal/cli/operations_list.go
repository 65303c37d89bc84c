package cli

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/cli/view"
)

func newOperationsListCommand(c operationsCommand) *cobra.Command {
	var noHeaders bool
	cmd := &cobra.Command{
		Use: "list [NAME]", Short: "List operations, newest first",
		Long: "Lists the operations of a cluster, or without NAME of all clusters, newest first.",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := c.open(cmd.Context())
			if err != nil {
				return err
			}
			list, err := svc.Operations(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			if list == nil {
				list = []v1alpha1.Operation{}
			}
			return c.writeResult(list, func(w io.Writer) error {
				if len(list) == 0 {
					c.printMessage("No operations found.")
					return nil
				}
				var rows [][]string
				for _, o := range list {
					rows = append(rows, []string{
						o.Name, o.Spec.ClusterRef.Name, o.Spec.Kind, string(o.Status.State), c.formatAge(o.CreationTimestamp.Time),
						view.FormatOperationDuration(o.Status), o.Status.Message,
					})
				}
				return writeTable(w, noHeaders, []string{"ID", "CLUSTER", "TYPE", "PHASE", "AGE", "TOOK", ""}, rows)
			})
		},
	}
	addNoHeadersFlag(cmd, &noHeaders)
	return cmd
}
