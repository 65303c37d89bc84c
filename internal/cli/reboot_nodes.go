package cli

import (
	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/lifecycle"
)

func newRebootCommand(children ...*cobra.Command) *cobra.Command {
	cmd := program.NewParentCommand("reboot", "Reboot the nodes of a cluster")
	cmd.AddCommand(children...)
	return cmd
}

// rebootNodesHelp is the help text of reboot nodes.
const rebootNodesHelp = `Reboots the hosts of a running cluster, for example after an update of the kernel.
Without HOST, reboots all hosts. HOST is a name, an address, a range (w[2:10]) or a
role (role=worker).

Control planes are rebooted first, one at a time, then hosts with only etcd, one at a
time, then workers. Slipway drains a node (it respects PodDisruptionBudgets) and
reboots its host. It uncordons the node when the kubelet, the control plane and the
etcd member of the host are healthy again. Only then is the next node drained. A node
that you have cordoned remains cordoned. Pods of a node move only if another node can
run them.

If a host does not come back, or a node does not become ready, no further node is
drained. Fix the cause and run "slipway resume". It does not reboot a host again that
was already rebooted. A host on which slipway itself runs is refused.`

func newRebootNodesCommand(c operationCommand) *cobra.Command {
	var (
		cluster string
		r       lifecycle.RebootNodesRequest
	)
	cmd := &cobra.Command{
		Use: "nodes [HOST...]", Aliases: []string{"node"},
		Short: "Drain, reboot and uncordon nodes one at a time",
		Long:  rebootNodesHelp,
		Example: `  slipway reboot nodes
  slipway reboot nodes --cluster prod --max-unavailable 20%
  slipway reboot node w3 --cluster prod`,
		ValidArgsFunction: c.clusters.completeHostNames(&cluster),
		RunE: func(cmd *cobra.Command, args []string) error {
			var clusterArgs []string
			if cluster != "" {
				clusterArgs = []string{cluster}
			}
			var err error
			if r.Name, err = c.clusters.chooseCluster(cmd.Context(), clusterArgs); err != nil {
				return err
			}
			r.Nodes = args
			return c.runner.runOperation(cmd.Context(), operation{prepare: prepareRequest(r)})
		},
	}
	cmd.Flags().StringVar(&cluster, "cluster", "", "the `cluster` of the hosts")
	_ = cmd.RegisterFlagCompletionFunc("cluster", func(cmd *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
		return c.clusters.completeNames(cmd, nil, text)
	})
	addMaxUnavailableFlag(cmd, &r.MaxUnavailable)
	addDrainFlags(cmd, &r.Removal, lifecycle.DefaultDrainTimeout)
	addIgnoreCheckFlag(cmd, &r.Options)
	addBreakLockFlag(cmd, &r.Options)
	return cmd
}
