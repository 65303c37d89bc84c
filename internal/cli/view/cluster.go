package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
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
		rows = append(rows, []string{h.Name, joinRoles(h.Roles), cmp.Or(n.InternalIP, "-"), cmp.Or(n.Version, "-"), ready, n.Message})
	}
	if err := WriteTable(w, []string{"NODE", "ROLES", "ADDRESS", "VERSION", "READY", ""}, rows); err != nil {
		return err
	}
	if next := nextClusterCommand(c); next != "" {
		fmt.Fprintf(w, "\nNext: %s\n", next)
	}
	return nil
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
