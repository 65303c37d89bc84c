package cli

import (
	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/spec"
)

func newAddCommand(children ...*cobra.Command) *cobra.Command {
	cmd := program.NewParentCommand("add", "Add nodes to a cluster")
	cmd.AddCommand(children...)
	return cmd
}

func newAddNodesCommand(c operationCommand) *cobra.Command {
	var (
		file  string
		hosts []string
		r     lifecycle.AddNodesRequest
	)
	cmd := &cobra.Command{
		Use: "nodes {-f FILE | --host HOST...} [NAME]", Aliases: []string{"node"},
		Short: "Add nodes to a cluster",
		Long: `Adds hosts to a running cluster. With -f, adds the hosts of FILE that are not in
the saved state. With --host, adds the given hosts to the cluster and to its saved state.
Other differences in FILE are ignored; to apply them, run: slipway apply -f FILE

If a host has the name of an existing host but is another machine, it replaces the
existing host. Slipway does not connect to workers that are already in the cluster.`,
		Example: `  slipway add nodes -f prod.yaml
  slipway add nodes prod --host root@10.0.0.14=worker --host root@10.0.0.15=worker,name=big`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if r.Subject, err = c.subjects.readSubject(cmd.Context(), file, args); err != nil {
				return err
			}
			for _, text := range hosts {
				flag, err := spec.ParseHostFlag(text)
				if err != nil {
					return err
				}
				r.Hosts = append(r.Hosts, flag)
			}
			return c.runner.runOperation(cmd.Context(), operation{prepare: prepareRequest(r), file: file})
		},
	}
	addFileFlag(cmd, &file, "the cluster file; - is standard input")
	cmd.Flags().StringArrayVar(&hosts, "host", nil, "a `HOST`: [user@]address[:port]=role[,role...][,name=NAME] (repeatable)")
	addOptionFlags(cmd, &r.Options)
	cmd.MarkFlagsMutuallyExclusive("file", "host")
	cmd.MarkFlagsOneRequired("file", "host")
	return cmd
}

// deleteNodesHelp is the help text of delete nodes.
const deleteNodesHelp = `Removes nodes from a running cluster. Slipway drains the nodes (it respects
PodDisruptionBudgets), resets their hosts, and deletes the nodes. NODE is a name,
an address, a range (w[2:10]) or a role (role=worker).

This removes the cluster's data on these hosts. Confirm it by typing the host's name
(for several hosts, the cluster's name), with --yes, or with --allow-removal.

An unreachable host is refused. If it is permanently lost, --forget removes its node
anyway; the files on the host remain. The machine must be off: while the cluster
still reports the node as ready (about 40 seconds after a crash), the removal is
refused, except with --force. If the machine comes back, the cluster rejects it until
you reset it by its address with --host.`

func newDeleteNodesCommand(c operationCommand) *cobra.Command {
	var (
		cluster      string
		hosts        []string
		allowRemoval bool
		r            lifecycle.DeleteNodesRequest
	)
	cmd := &cobra.Command{
		Use: "nodes {NODE... | --host HOST...}", Aliases: []string{"node"},
		Short: "Remove nodes from a cluster and reset their hosts",
		Long:  deleteNodesHelp,
		Example: `  slipway delete node w3
  slipway delete nodes w3 w4 --cluster prod --yes
  slipway delete node w3 --forget              # its machine is permanently lost
  slipway delete node --host root@10.0.0.13    # the machine came back; reset it`,
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
			if len(args) == 0 && len(hosts) == 0 {
				return newProblem(idUsage, "see: "+cmd.CommandPath()+" --help", "no nodes given")
			}
			for _, text := range hosts {
				flag, err := spec.ParseHostFlag(text + "=" + string(v1alpha1.RoleWorker)) // any valid role; the host has none
				if err != nil {
					return err
				}
				r.Hosts = append(r.Hosts, flag)
			}
			r.Nodes = args
			return c.runner.runOperation(cmd.Context(), operation{prepare: prepareRequest(r), isNamedByUser: true, allowRemoval: allowRemoval})
		},
	}
	cmd.Flags().StringVar(&cluster, "cluster", "", "the `cluster` of the nodes")
	_ = cmd.RegisterFlagCompletionFunc("cluster", func(cmd *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
		return c.clusters.completeNames(cmd, nil, text)
	})
	cmd.Flags().StringArrayVar(&hosts, "host", nil,
		"reset a `HOST` that was removed with --forget and came back: [user@]address[:port] (repeatable)")
	addLeavingHostFlags(cmd, &allowRemoval, &r.Forget, &r.Removal)
	addOptionFlags(cmd, &r.Options)
	return cmd
}
