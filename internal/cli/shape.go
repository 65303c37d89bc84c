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
		Short: "Add hosts to a cluster: those that are new in a file, or those named",
		Long: `Adds hosts to a cluster that runs: those of FILE that are not on record yet, or
those named with --host, which are written into the record. Other differences
of the file are left to: slipway apply -f FILE

A host whose name is on record, and which is another machine by now, takes the
place of the one before. Workers that are there already are not even asked.`,
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
		Short: "Take nodes off a cluster and put their hosts back as they were",
		Long: `Takes nodes off a cluster that goes on without them: they are drained, with
disruption budgets respected, their hosts are put back as they were before, and
the nodes are deleted. NODE is a name, an address, a range (w[2:10]) or a role
(role=worker).

This removes what the cluster keeps on these hosts. It is confirmed by typing
the host's name (the cluster's, for several), by --yes, or by --allow-removal.

A host that does not answer is refused; when it is gone for good, --forget takes
its node off all the same, and what is on the host stays there. It must be off:
while the cluster says that its node is ready (for about 40 seconds after it
died), it is refused, but with --force. Should the machine come back, the cluster
turns it away, until it has been put back by its address: --host.`,
		Example: `  slipway delete node w3
  slipway delete nodes w3 w4 --cluster prod --yes
  slipway delete node w3 --forget              # its machine is gone
  slipway delete node --host root@10.0.0.13    # and is back again`,
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
				return problem(idUsage, "see: "+cmd.CommandPath()+" --help", "which nodes? None is named")
			}
			for _, text := range hosts {
				flag, err := spec.ParseHostFlag(text + "=" + string(v1alpha1.RoleWorker)) // as good as any: it has none
				if err != nil {
					return err
				}
				r.Hosts = append(r.Hosts, flag)
			}
			r.Nodes, r.Forget, r.Removal = args, forget, removal
			return a.operate(cmd.Context(), operation{prepare: a.prepare(r), named: true, allowRemoval: allowRemoval})
		},
	}
	cmd.Flags().StringVar(&cluster, "cluster", "", "the `cluster` they are in")
	_ = cmd.RegisterFlagCompletionFunc("cluster", func(cmd *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
		return a.clusterNames(cmd, nil, text)
	})
	cmd.Flags().StringArrayVar(&hosts, "host", nil, "a `HOST` that was given up with --forget, and is back: [user@]address[:port] (repeatable)")
	leavingFlags(cmd, &allowRemoval, &forget, &removal)
	a.changeFlags(cmd)
	return cmd
}

// leavingFlags are about hosts that leave a cluster which goes on.
func leavingFlags(cmd *cobra.Command, allowRemoval, forget *bool, r *lifecycle.Removal) {
	removalFlag(cmd, allowRemoval)
	drainFlags(cmd, r, lifecycle.DefaultDrainTimeout)
	f := cmd.Flags()
	f.Lookup("force").Usage += "; with --forget, give up hosts that run"
	f.BoolVar(forget, "forget", false, "give up hosts that leave and do not answer: what is on them stays")
}

// drainFlags are about the pods of nodes that go out of service. Without a limit
// it is the one with which an operation was begun.
func drainFlags(cmd *cobra.Command, r *lifecycle.Removal, limit time.Duration) {
	f := cmd.Flags()
	f.BoolVar(&r.Force, "force", false, "delete pods that cannot be evicted: without a controller, or with a budget that never lets go")
	r.DrainTimeout = limit
	f.Var((*limitFlag)(&r.DrainTimeout), "drain-timeout", "how long to wait for the pods of a node to leave")
}

// A limitFlag is a duration that is above nothing.
type limitFlag time.Duration

func (l *limitFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("it must be above nothing, such as 10m")
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
