package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/spec"
)

// getCommand holds what "get" and "use" need.
type getCommand struct {
	*workspace
	clusters *clusterChooser
	open     opener[clusterReader]
}

func newGetCommand(c getCommand) *cobra.Command {
	cmd := program.Parent("get", "Show clusters")
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
				list = []lifecycle.ClusterSummary{}
			}
			if err := c.writeResult(list, func(w io.Writer) error { return c.writeClusterTable(w, list, noHeaders) }); err != nil {
				return err
			}
			return c.reportDamaged(list)
		},
	}
	headersFlag(clusters, &noHeaders)
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
			cluster = spec.Redacted(cluster)
			return c.writeResult(cluster, func(w io.Writer) error { return writeCluster(w, cluster) })
		},
	})
	return cmd
}

// reportDamaged prints the clusters of a list that could not be read, and returns an exit
// code for an incomplete list. JSON and YAML output already contains the problems.
func (c getCommand) reportDamaged(list []lifecycle.ClusterSummary) error {
	var told diag.List
	for _, c := range list {
		if c.Problem != nil {
			told = append(told, *c.Problem)
		}
	}
	if len(told) == 0 {
		return nil
	}
	view.Diagnostics(c.Err, told, c.errStyle())
	return &exitError{code: exitRefused}
}

func (c getCommand) writeClusterTable(w io.Writer, list []lifecycle.ClusterSummary, noHeaders bool) error {
	if len(list) == 0 {
		c.printMessage("No clusters found. Create one: slipway create cluster")
		return nil
	}
	chosen := ""
	if s, err := c.openStore(); err == nil {
		chosen, _ = s.Default() // without it, no line is marked
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
	return table(w, noHeaders, []string{"NAME", "PHASE", "KUBERNETES", "NODES", "ENDPOINT", "AGE"}, rows)
}

func writeCluster(w io.Writer, c *v1alpha1.Cluster) error {
	s := c.Status
	for _, line := range [][2]string{
		{"Name", c.Name},
		{"Phase", string(cmp.Or(s.Phase, v1alpha1.PhasePending))},
		{"Kubernetes", cmp.Or(s.Version, c.Spec.Kubernetes.Version)},
		{"Network", cmp.Or(s.Plugin, c.Spec.Network.Plugin)},
		{"Endpoint", s.Endpoint},
		{"Operation", s.Operation},
	} {
		if line[1] != "" {
			fmt.Fprintf(w, "%-12s%s\n", line[0]+":", line[1])
		}
	}
	for _, cond := range s.Conditions {
		fmt.Fprintf(w, "%-12s%s: %s\n", cond.Type+":", cond.Status, cond.Message)
	}
	fmt.Fprintln(w)
	var rows [][]string
	for _, h := range c.Spec.Hosts {
		n := v1alpha1.NodeStatus{InternalIP: cmp.Or(h.InternalAddress, h.Address)}
		i := slices.IndexFunc(s.Nodes, func(n v1alpha1.NodeStatus) bool { return n.Name == h.Name })
		ready := "-"
		if i >= 0 {
			n = s.Nodes[i]
			ready = map[bool]string{true: "yes", false: "no"}[n.Ready]
		}
		rows = append(rows, []string{h.Name, roles(h.Roles), cmp.Or(n.InternalIP, "-"), cmp.Or(n.Version, "-"), ready, n.Message})
	}
	if err := view.Table(w, []string{"NODE", "ROLES", "ADDRESS", "VERSION", "READY", ""}, rows); err != nil {
		return err
	}
	if next := nextFor(c); next != "" {
		fmt.Fprintf(w, "\nNext: %s\n", next)
	}
	return nil
}

func roles(list []v1alpha1.Role) string {
	var out []string
	for _, r := range list {
		out = append(out, string(r))
	}
	return strings.Join(out, ",")
}

// nextFor returns the next command for a cluster, depending on its phase.
func nextFor(c *v1alpha1.Cluster) string {
	switch c.Status.Phase {
	case v1alpha1.PhaseRunning:
		return "slipway kubectl " + c.Name + " -- get nodes"
	case v1alpha1.PhaseFailed, v1alpha1.PhasePaused:
		return "slipway resume " + c.Name
	case v1alpha1.PhaseCreating, v1alpha1.PhaseScaling, v1alpha1.PhaseUpgrading, v1alpha1.PhaseReconfiguring, v1alpha1.PhaseDeleting:
		return "slipway operations watch " + c.Status.Operation
	}
	return ""
}

// table writes a table, with or without its header.
func table(w io.Writer, without bool, head []string, rows [][]string) error {
	if without {
		head = nil
	}
	return view.Table(w, head, rows)
}
