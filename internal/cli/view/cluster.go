package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/hostroles"
	"slipway.dev/slipway/internal/status"
)

// WriteCluster writes the state of a cluster and its nodes, and the next command.
func WriteCluster(w io.Writer, c *v1alpha1.Cluster) error {
	s := c.Status
	for _, line := range [][2]string{
		{"Name", c.Name},
		{"Phase", string(cmp.Or(s.Phase, v1alpha1.PhasePending))},
		{"Kubernetes", cmp.Or(s.Version, c.Spec.Kubernetes.Version)},
		{"Network", cmp.Or(s.Plugin, c.Spec.Network.Plugin)},
		{"Endpoint", s.Endpoint},
		{"Nodes", formatNodeCounts(s.NodeCounts)},
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
	if err := writeNodes(w, c); err != nil {
		return err
	}
	if next := nextClusterCommand(c); next != "" {
		fmt.Fprintf(w, "\nNext: %s\n", next)
	}
	return nil
}

// writeNodes writes the hosts with their nodes. If the status does not list all nodes, it omits
// the other nodes.
func writeNodes(w io.Writer, c *v1alpha1.Cluster) error {
	complete := status.ListsAllNodes(&c.Status)
	var rows [][]string
	for _, h := range c.Spec.Hosts {
		n, ready := v1alpha1.NodeStatus{InternalIP: cmp.Or(h.InternalAddress, h.Address)}, "-"
		i := slices.IndexFunc(c.Status.Nodes, func(n v1alpha1.NodeStatus) bool { return n.Name == h.Name })
		switch {
		case i >= 0:
			n = c.Status.Nodes[i]
			ready = map[bool]string{true: "yes", false: "no"}[n.Ready]
		case !complete && hostroles.RunsKubelet(h.Roles):
			continue
		}
		rows = append(rows, []string{h.Name, joinRoles(h.Roles), cmp.Or(n.InternalIP, "-"), cmp.Or(n.Version, "-"), ready, n.Message})
	}
	if len(rows) > 0 {
		if err := WriteTable(w, []string{"NODE", "ROLES", "ADDRESS", "VERSION", "READY", ""}, rows); err != nil {
			return err
		}
	}
	if !complete {
		fmt.Fprintf(w, "%d other nodes are not listed: slipway kubectl %s -- get nodes\n", c.Status.NodeCounts.Total-len(c.Status.Nodes), c.Name)
	}
	return nil
}

// formatNodeCounts formats the numbers of ready nodes; "" if none are known.
func formatNodeCounts(n v1alpha1.NodeCounts) string {
	if n.Total == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d ready; control planes: %d of %d ready", n.Ready, n.Total, n.ReadyControlPlanes, n.ControlPlanes)
}

func joinRoles(list []v1alpha1.Role) string {
	var out []string
	for _, r := range list {
		out = append(out, string(r))
	}
	return strings.Join(out, ",")
}

// nextClusterCommand returns the next command for a cluster, depending on its phase.
func nextClusterCommand(c *v1alpha1.Cluster) string {
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
