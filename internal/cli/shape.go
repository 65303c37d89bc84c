package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/spec"
)

func (a *app) addCmd() *cobra.Command {
	cmd := program.Parent("add", "Add nodes to a cluster")
	cmd.AddCommand(a.addNodesCmd())
	return cmd
}

func (a *app) addNodesCmd() *cobra.Command {
	var (
		file  string
		hosts []string
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
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.request(cmd.Context(), lifecycle.Add, file, args)
			if err != nil {
				return err
			}
			for _, text := range hosts {
				flag, err := spec.ParseHostFlag(text)
				if err != nil {
					return err
				}
				r.Hosts = append(r.Hosts, flag)
			}
			return a.operate(cmd.Context(), operation{prepare: a.prepare(r), file: file})
		},
	}
	fileFlag(cmd, &file, "the cluster file; - is standard input")
	cmd.Flags().StringArrayVar(&hosts, "host", nil, "a `HOST`: [user@]address[:port]=role[,role...][,name=NAME] (repeatable)")
	a.changeFlags(cmd)
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

func (a *app) deleteNodesCmd() *cobra.Command {
	var (
		cluster      string
		hosts        []string
		allowRemoval bool
		forget       bool
		removal      lifecycle.Removal
	)
	cmd := &cobra.Command{
		Use: "nodes {NODE... | --host HOST...}", Aliases: []string{"node"},
		Short: "Remove nodes from a cluster and reset their hosts",
		Long:  deleteNodesHelp,
		Example: `  slipway delete node w3
  slipway delete nodes w3 w4 --cluster prod --yes
  slipway delete node w3 --forget              # its machine is permanently lost
  slipway delete node --host root@10.0.0.13    # the machine came back; reset it`,
		ValidArgsFunction: a.hostNames(&cluster),
		RunE: func(cmd *cobra.Command, args []string) error {
			var of []string
			if cluster != "" {
				of = []string{cluster}
			}
			r, err := a.request(cmd.Context(), lifecycle.Remove, "", of)
			if err != nil {
				return err
			}
			if len(args) == 0 && len(hosts) == 0 {
				return problem(idUsage, "see: "+cmd.CommandPath()+" --help", "no nodes given")
			}
			for _, text := range hosts {
				flag, err := spec.ParseHostFlag(text + "=" + string(v1alpha1.RoleWorker)) // any valid role; the host has none
				if err != nil {
					return err
				}
				r.Hosts = append(r.Hosts, flag)
			}
			r.Nodes, r.Forget, r.Removal = args, forget, removal
			return a.operate(cmd.Context(), operation{prepare: a.prepare(r), named: true, allowRemoval: allowRemoval})
		},
	}
	cmd.Flags().StringVar(&cluster, "cluster", "", "the `cluster` of the nodes")
	_ = cmd.RegisterFlagCompletionFunc("cluster", func(cmd *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
		return a.clusterNames(cmd, nil, text)
	})
	cmd.Flags().StringArrayVar(&hosts, "host", nil,
		"reset a `HOST` that was removed with --forget and came back: [user@]address[:port] (repeatable)")
	leavingFlags(cmd, &allowRemoval, &forget, &removal)
	a.changeFlags(cmd)
	return cmd
}

// leavingFlags adds the flags for hosts that are removed from a running cluster.
func leavingFlags(cmd *cobra.Command, allowRemoval, forget *bool, r *lifecycle.Removal) {
	removalFlag(cmd, allowRemoval)
	drainFlags(cmd, r, lifecycle.DefaultDrainTimeout)
	f := cmd.Flags()
	f.Lookup("force").Usage += "; with --forget, also remove hosts that are running"
	f.BoolVar(forget, "forget", false, "remove hosts even if they are unreachable; their files remain")
}

// drainFlags adds the flags for draining nodes. A limit of 0 means the limit with which
// the operation began.
func drainFlags(cmd *cobra.Command, r *lifecycle.Removal, limit time.Duration) {
	f := cmd.Flags()
	f.BoolVar(&r.Force, "force", false,
		"delete pods that cannot be evicted: pods without a controller, or with a disruption budget that never allows it")
	r.DrainTimeout = limit
	f.Var((*limitFlag)(&r.DrainTimeout), "drain-timeout", "how long to wait for the pods of a node to terminate")
}

// A limitFlag is a duration greater than zero.
type limitFlag time.Duration

func (l *limitFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("must be greater than zero, for example 10m")
	}
	if err != nil {
		return err
	}
	*l = limitFlag(d)
	return nil
}

func (l *limitFlag) Type() string { return "duration" }

func (l *limitFlag) String() string {
	if *l == 0 {
		return "" // none
	}
	return time.Duration(*l).String()
}

// hostNames completes the names of a cluster's hosts.
func (a *app) hostNames(cluster *string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		var of []string
		if *cluster != "" {
			of = []string{*cluster}
		}
		svc, name, err := a.chosen(cmd.Context(), of)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		c, err := svc.Cluster(cmd.Context(), name)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for _, h := range c.Spec.Hosts {
			names = append(names, h.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
