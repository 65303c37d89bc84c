package view

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/status"
)

func TestWriteCluster_ListsNodes(t *testing.T) {
	cluster := func(total int, ready func(i int) bool) *v1alpha1.Cluster {
		c := &v1alpha1.Cluster{}
		c.Name = "prod"
		var nodes []v1alpha1.NodeStatus
		for i := range total {
			n := v1alpha1.NodeStatus{
				Name: fmt.Sprintf("n%d", i), InternalIP: "10.0.0.7", Roles: []v1alpha1.Role{v1alpha1.RoleWorker}, Ready: ready(i),
			}
			if i == 0 {
				n.Roles[0] = v1alpha1.RoleControlPlane
			}
			nodes = append(nodes, n)
			c.Spec.Hosts = append(c.Spec.Hosts, v1alpha1.Host{Name: n.Name, Address: n.InternalIP, Roles: n.Roles})
		}
		c.Spec.Hosts = append(c.Spec.Hosts, v1alpha1.Host{Name: "new", Address: "10.0.0.9", Roles: []v1alpha1.Role{v1alpha1.RoleWorker}})
		status.SetNodes(&c.Status, nodes)
		return c
	}
	for _, tc := range []struct {
		name, reason string
		cluster      *v1alpha1.Cluster
		rows         []string // the first words of rows
		lines        []string
	}{
		{
			"small cluster", "each host has a row, also one that is not a node yet", cluster(3, func(i int) bool { return i != 2 }),
			[]string{"n0", "n1", "n2", "new"},
			[]string{"Nodes:      2 of 3 ready; control planes: 1 of 1 ready"},
		},
		{
			"large cluster", "nodes that are not ready have rows", cluster(300, func(i int) bool { return i > 1 }),
			[]string{"n0", "n1"},
			[]string{
				"Nodes:      298 of 300 ready; control planes: 0 of 1 ready",
				"298 other nodes are not listed: slipway kubectl prod -- get nodes",
			},
		},
		{
			"large cluster, all ready", "there is nothing to list", cluster(300, func(int) bool { return true }),
			nil,
			[]string{"300 other nodes are not listed: slipway kubectl prod -- get nodes"},
		},
		{"no status", "nothing is known of the hosts", cluster(0, nil), []string{"new"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := WriteCluster(&out, tc.cluster); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(out.String(), "\n")
			for _, want := range tc.lines {
				if !strings.Contains(out.String(), want+"\n") {
					t.Errorf("%q is missing: %s", want, tc.reason)
				}
			}
			var rows []string
			for _, line := range lines {
				if word, _, _ := strings.Cut(line, " "); strings.Contains(line, "10.0.0.") {
					rows = append(rows, word)
				}
			}
			if got, want := strings.Join(rows, " "), strings.Join(tc.rows, " "); got != want {
				t.Errorf("rows %s, want %s: %s\n%s", got, want, tc.reason, out.String())
			}
		})
	}
}
