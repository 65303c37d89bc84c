package cli

import (
	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/lifecycle"
)

func newEtcdDefragCommand(c operationCommand) *cobra.Command {
	var r lifecycle.DefragEtcdRequest
	cmd := &cobra.Command{
		Use: "defrag [NAME]", Short: "Defragment the etcd databases",
		Long: `Defragments the etcd members of a cluster one at a time, the leader last, and each
only while all members are healthy. A member does not serve requests while it is
defragmented, usually for seconds. A member that would free less than a tenth is
skipped. A full database (alarm NOSPACE) is compacted first, and the alarm is
cleared when there is space again.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if r.Name, err = c.clusters.chooseCluster(cmd.Context(), args); err != nil {
				return err
			}
			return c.runner.runOperation(cmd.Context(), operation{prepare: prepareRequest(r)})
		},
	}
	addBreakLockFlag(cmd, &r.Options)
	return cmd
}
