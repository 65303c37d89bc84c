package cli

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/spec"
)

// getCommand holds what "get" and "use" need.
type getCommand struct {
	*workspace
	clusters *clusterChooser
	open     opener[clusterReader]
}

func newGetCommand(c getCommand) *cobra.Command {
	cmd := program.NewParentCommand("get", "Show clusters")
	var noHeaders bool
	clusters := &cobra.Command{
		Use: "clusters", Short: "List clusters", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			svc, err := c.open(cmd.Context())
			if err != nil {
				return err
			}
			list, err := svc.Clusters(cmd.Context())
			if err != nil {
				return err
			}
			if list == nil {
				list = []savedstate.ClusterSummary{}
			}
			if err := c.writeResult(list, func(w io.Writer) error { return c.writeClusterTable(w, list, noHeaders) }); err != nil {
				return err
			}
			return c.reportDamaged(list)
		},
	}
	addNoHeadersFlag(clusters, &noHeaders)
	cmd.AddCommand(clusters, &cobra.Command{
		Use: "cluster [NAME]", Short: "Show a cluster's state, nodes and latest operation",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, name, err := openForCluster(cmd.Context(), c.clusters, c.open, args)
			if err != nil {
				return err
			}
			cluster, err := svc.Cluster(cmd.Context(), name)
			if err != nil {
				return err
			}
			// Passwords in the cluster file must not be shown.
			cluster = spec.RedactCluster(cluster)
			return c.writeResult(cluster, func(w io.Writer) error { return view.WriteCluster(w, cluster) })
		},
	})
	return cmd
}

// reportDamaged prints the clusters of a list that could not be read, and returns an exit
// code for an incomplete list. JSON and YAML output already contains the problems.
func (c getCommand) reportDamaged(list []savedstate.ClusterSummary) error {
	var problems diag.List
	for _, c := range list {
		if c.Problem != nil {
			problems = append(problems, *c.Problem)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	view.WriteDiagnostics(c.Err, problems, c.errStyle())
	return &exitError{code: exitRefused}
}

func (c getCommand) writeClusterTable(w io.Writer, list []savedstate.ClusterSummary, noHeaders bool) error {
	if len(list) == 0 {
		c.printMessage("No clusters found. Create one: slipway create cluster")
		return nil
	}
	chosen := ""
	if s, err := c.openStore(); err == nil {
		chosen, _ = s.Preferences().DefaultCluster() // without it, no line is marked
	}
	var rows [][]string
	for _, cluster := range list {
		name := cluster.Name
		if name == chosen {
			name += " *"
		}
		nodes := fmt.Sprintf("%d/%d", cluster.Ready, cluster.Hosts)
		if cluster.Problem != nil {
			nodes = "-"
		}
		rows = append(rows, []string{
			name, string(cmp.Or(cluster.Phase, "-")), cmp.Or(cluster.Kubernetes, "-"), nodes,
			cmp.Or(cluster.Endpoint, "-"), c.formatAge(cluster.Created),
		})
	}
	return writeTable(w, noHeaders, []string{"NAME", "PHASE", "KUBERNETES", "NODES", "ENDPOINT", "AGE"}, rows)
}

// writeTable writes a table, with or without its header.
func writeTable(w io.Writer, without bool, head []string, rows [][]string) error {
	if without {
		head = nil
	}
	return view.WriteTable(w, head, rows)
}
