package cli

import (
	"slices"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/lifecycle"
)

func newEtcdRescueCommand(c operationCommand) *cobra.Command {
	var (
		lost         []string
		allowRemoval bool
		r            lifecycle.RescueEtcdRequest
	)
	cmd := &cobra.Command{
		Use: "rescue [NAME] --lost HOST,...", Short: "Recover a cluster whose etcd has lost quorum",
		Long: `Recovers a cluster whose etcd has lost quorum. Slipway creates an etcd with a single
member from the data of a remaining member, and a working control plane with it.
Give the lost hosts with --lost; they must not be reachable. All other hosts with an
etcd member or a control plane must be reachable.

Slipway reads the data of the remaining members and uses the most recent data: it
compares the term of the last entry, then its index. A damaged log counts up to the
damage, or as far as the database next to it; the plan shows what is lost by that.
--from selects another host.

Slipway stops etcd and the control planes, takes a snapshot of a copy of the selected
data, and creates the new data from that snapshot. The previous data is moved aside
and remains on the hosts. Everything that caches data of the API is restarted. Writes
that the lost members acknowledged and that are not in the selected log are lost. If
the rescue is interrupted, continue with: slipway resume. Afterwards, remove the lost
hosts and add new ones; the summary at the end shows the commands.

If you can start more than half of the members again, do that instead: no data is lost
then. Confirm the rescue by typing the cluster's name, by giving the cluster's name
with --yes, or with --allow-removal.`,
		Example: `  slipway etcd rescue prod --lost cp2,cp3
  slipway etcd rescue prod --lost cp1,cp2,cp3 --from cp5`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if r.Name, err = c.clusters.chooseCluster(cmd.Context(), args); err != nil {
				return err
			}
			r.Lost = slices.Compact(slices.Sorted(slices.Values(lost)))
			return c.runner.runOperation(cmd.Context(),
				operation{prepare: prepareRequest(r), isNamedByUser: len(args) > 0, allowRemoval: allowRemoval})
		},
	}
	cmd.Flags().StringSliceVar(&lost, "lost", nil, "the `hosts` that are permanently lost")
	cmd.Flags().StringVar(&r.From, "from", "", "use the data of this `host` instead of the most recent data")
	_ = cmd.MarkFlagRequired("lost") // the flag is there
	addAllowRemovalFlag(cmd, &allowRemoval)
	addOptionFlags(cmd, &r.Options)
	return cmd
}
