package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/spec"
)

func (a *app) getCmd() *cobra.Command {
	cmd := program.Parent("get", "Show clusters")
	var noHeaders bool
	clusters := &cobra.Command{
		Use: "clusters", Short: "List clusters", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			svc, err := a.svc(cmd.Context())
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
			if err := a.data(list, func(w io.Writer) error { return a.clusterTable(w, list, noHeaders) }); err != nil {
				return err
			}
			return a.problems(list)
		},
	}
	headersFlag(clusters, &noHeaders)
	cmd.AddCommand(clusters, &cobra.Command{
		Use: "cluster [NAME]", Short: "Show a cluster's state, nodes and latest operation",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, name, err := a.chosen(cmd.Context(), args)
			if err != nil {
				return err
			}
			c, err := svc.Cluster(cmd.Context(), name)
			if err != nil {
				return err
			}
			// Passwords in the cluster file must not be shown.
			c = spec.Redacted(c)
			return a.data(c, func(w io.Writer) error { return a.cluster(w, c) })
		},
	})
	return cmd
}

// problems prints the clusters of a list that could not be read, and returns an exit
// code for an incomplete list. JSON and YAML output already contains the problems.
func (a *app) problems(list []lifecycle.ClusterSummary) error {
	var told diag.List
	for _, c := range list {
		if c.Problem != nil {
			told = append(told, *c.Problem)
		}
	}
	if len(told) == 0 {
		return nil
	}
	view.Diagnostics(a.Err, told, a.style())
	return &exitError{code: exitRefused}
}

// headersFlag adds the flag that omits a table's header.
func headersFlag(cmd *cobra.Command, without *bool) {
	cmd.Flags().BoolVar(without, "no-headers", false, "omit the header of the table")
}

// table writes a table, with or without its header.
func table(w io.Writer, without bool, head []string, rows [][]string) error {
	if without {
		head = nil
	}
	return view.Table(w, head, rows)
}

func (a *app) clusterTable(w io.Writer, list []lifecycle.ClusterSummary, noHeaders bool) error {
	if len(list) == 0 {
		a.say("No clusters found. Create one: slipway create cluster")
		return nil
	}
	chosen := ""
	if s, err := a.store(); err == nil {
		chosen, _ = s.Default() // without it, no line is marked
	}
	var rows [][]string
	for _, c := range list {
		name := c.Name
		if name == chosen {
			name += " *"
		}
		nodes := fmt.Sprintf("%d/%d", c.Ready, c.Hosts)
		if c.Problem != nil {
			nodes = "-"
		}
		rows = append(rows, []string{
			name, string(cmp.Or(c.Phase, "-")), cmp.Or(c.Kubernetes, "-"), nodes, cmp.Or(c.Endpoint, "-"), a.age(c.Created),
		})
	}
	return table(w, noHeaders, []string{"NAME", "PHASE", "KUBERNETES", "NODES", "ENDPOINT", "AGE"}, rows)
}

func (a *app) age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return view.Age(a.env.Now().Sub(t))
}

func (a *app) cluster(w io.Writer, c *v1alpha1.Cluster) error {
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

func (a *app) useCmd() *cobra.Command {
	return &cobra.Command{
		Use: "use [NAME]", Short: "Set the default cluster",
		Long: `Sets the cluster that commands use when no cluster name is given. Without NAME,
shows the default cluster.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			records, err := a.store()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				name, err := records.Default()
				if err != nil {
					return err
				}
				return a.data(map[string]string{"default": name}, func(w io.Writer) error {
					_, err := fmt.Fprintln(w, cmp.Or(name, "no default cluster is set"))
					return err
				})
			}
			svc, err := a.svc(cmd.Context())
			if err != nil {
				return err
			}
			if err := named(args[0]); err != nil {
				return err
			}
			if _, err := svc.Cluster(cmd.Context(), args[0]); err != nil {
				return err
			}
			if err := records.SetDefault(args[0]); err != nil {
				return err
			}
			return a.data(map[string]string{"default": args[0]}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "The default cluster is now %s.\n", args[0])
				return err
			})
		},
	}
}
