package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/spec"
)

// A clusterChooser finds the cluster that a command is for.
type clusterChooser struct {
	*workspace
	open opener[clusterReader]
}

// chooseCluster returns the name of the cluster to use: the argument, or the default
// cluster, or the only cluster.
func (c *clusterChooser) chooseCluster(ctx context.Context, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], checkClusterName(args[0])
	}
	records, err := c.openStore()
	if err != nil {
		return "", err
	}
	if name, err := records.Preferences().DefaultCluster(); err != nil || name != "" {
		return name, markRefused(err)
	}
	svc, err := c.open(ctx)
	if err != nil {
		return "", err
	}
	list, err := svc.Clusters(ctx)
	if err != nil {
		return "", markRefused(err)
	}
	switch len(list) {
	case 0:
		return "", newProblem(idNoCluster, "create a cluster (slipway create cluster), or give a cluster file with -f", "no clusters found")
	case 1:
		return list[0].Name, nil
	}
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
	}
	return "", newProblem(idWhichCluster, "give a cluster name, or set a default: slipway use NAME",
		"no cluster name given; clusters: %s", strings.Join(names, ", "))
}

// checkClusterName returns an error if name is not a valid cluster name.
func checkClusterName(name string) error {
	problems := spec.NameProblems(name)
	if len(problems) == 0 {
		return nil
	}
	return newProblem(idName, "list the clusters: slipway get clusters", "%q is not a valid cluster name: %s", name,
		strings.Join(problems, "; "))
}

// completeNames completes the name of a cluster.
func (c *clusterChooser) completeNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	svc, err := c.open(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list, err := svc.Clusters(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeHostNames completes the names of a cluster's hosts.
func (c *clusterChooser) completeHostNames(cluster *string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		var clusterArgs []string
		if *cluster != "" {
			clusterArgs = []string{*cluster}
		}
		svc, name, err := openForCluster(cmd.Context(), c, c.open, clusterArgs)
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
