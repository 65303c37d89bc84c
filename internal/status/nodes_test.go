package status

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
)

// nodes returns three control planes and workers, of which some are not ready.
func nodes(total int, ready func(i int) bool, message string) (out []v1alpha1.NodeStatus) {
	for i := range total {
		n := v1alpha1.NodeStatus{
			Name: fmt.Sprintf("node-%04d", i), InternalIP: fmt.Sprintf("fd00:10:20:30:40:50:60:%x", i), MachineID: strings.Repeat("a", 32),
			Roles: []v1alpha1.Role{v1alpha1.RoleWorker}, Version: "v1.37.1", Ready: ready(i),
		}
		if i >= total-3 { // the last ones
			n.Roles = []v1alpha1.Role{v1alpha1.RoleControlPlane, v1alpha1.RoleEtcd}
		}
		if !n.Ready {
			n.Message = message
		}
		out = append(out, n)
	}
	return out
}

func TestSetNodes_ListsNodesThatAreNotReady(t *testing.T) {
	all, none := func(int) bool { return true }, func(int) bool { return false }
	for _, tc := range []struct {
		name, reason string
		nodes        []v1alpha1.NodeStatus
		counts       v1alpha1.NodeCounts
		listed       int
		first        string
		complete     bool
	}{
		{"no nodes", "nothing is to be listed", nil, v1alpha1.NodeCounts{}, 0, "", true},
		{
			"small cluster", "all rows are kept in their order", nodes(5, all, ""),
			v1alpha1.NodeCounts{Total: 5, Ready: 5, ControlPlanes: 3, ReadyControlPlanes: 3},
			5, "node-0000", true,
		},
		{
			"at the limit", "all rows are kept", nodes(100, func(i int) bool { return i > 0 }, "x"),
			v1alpha1.NodeCounts{Total: 100, Ready: 99, ControlPlanes: 3, ReadyControlPlanes: 3},
			100, "node-0000", true,
		},
		{
			"above the limit", "ready nodes are omitted", nodes(101, func(i int) bool { return i != 7 }, "x"),
			v1alpha1.NodeCounts{Total: 101, Ready: 100, ControlPlanes: 3, ReadyControlPlanes: 3},
			1, "node-0007", false,
		},
		{
			"all ready", "the counts tell it", nodes(1000, all, ""),
			v1alpha1.NodeCounts{Total: 1000, Ready: 1000, ControlPlanes: 3, ReadyControlPlanes: 3},
			0, "", false,
		},
		{
			"none ready", "control planes come first", nodes(1000, none, "x"),
			v1alpha1.NodeCounts{Total: 1000, ControlPlanes: 3},
			100, "node-0997", false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var st v1alpha1.ClusterStatus
			SetNodes(&st, tc.nodes)
			first := ""
			if len(st.Nodes) > 0 {
				first = st.Nodes[0].Name
			}
			if d := cmp.Diff(tc.counts, st.NodeCounts); d != "" || len(st.Nodes) != tc.listed || first != tc.first {
				t.Errorf("%d nodes from %q, want %d from %q: %s; counts (-want +got):\n%s", len(st.Nodes), first, tc.listed, tc.first, tc.reason, d)
			}
			if got := ListsAllNodes(&st); got != tc.complete {
				t.Errorf("lists all nodes: %t, want %t", got, tc.complete)
			}
		})
	}
}

func TestSetNodes_StaysBelowLimit(t *testing.T) {
	none := func(int) bool { return false }
	long := nodes(1000, none, "x")
	for i := range long {
		long[i].Name += strings.Repeat("n", 53)
		long[i].Message = strings.Repeat("kubelet <is not posting> ", 40)
	}
	foreign := nodes(1000, none, "x")
	for i := range foreign {
		foreign[i].Version = strings.Repeat("\x00", 4000) // a kubelet may report it
	}
	for _, tc := range []struct {
		name, reason string
		nodes        []v1alpha1.NodeStatus
		listed       int // at least
	}{
		{"usual messages", "all rows have room", nodes(1000, none, "Kubelet stopped posting node status."), 100},
		{"long messages", "they are cut", long, 100},
		{"long messages of a small cluster", "they are cut", long[:100], 100},
		{"large fields", "nodes are omitted", foreign, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := v1alpha1.ClusterStatus{
				Phase: v1alpha1.PhaseReconfiguring, Version: "v1.37.1", Plugin: "calico", Endpoint: "https://api.prod.internal:6443",
				Operation: "20261120-181502-create-x7k2", Conditions: make([]metav1.Condition, 16),
			}
			for i := range st.Conditions {
				st.Conditions[i] = metav1.Condition{
					Type: strings.Repeat("t", 40), Reason: strings.Repeat("r", 60), Message: strings.Repeat("m", v1alpha1.MaxConditionMessage),
				}
			}
			for range v1alpha1.MaxRecentOperations {
				st.RecentOperations = append(st.RecentOperations, v1alpha1.RecentOperation{
					Name: strings.Repeat("o", 63), Kind: "rollback-upgrade", State: v1alpha1.OperationAwaitingApproval, EndTime: &metav1.Time{},
				})
			}
			host := strings.Repeat("h", 63)
			st.Summary = &v1alpha1.ClusterSummary{
				API: &v1alpha1.APISummary{Through: host, ObservedTime: &metav1.Time{}}, Etcd: &v1alpha1.EtcdSummary{},
				NextCertificate: &v1alpha1.CertificateSummary{Name: strings.Repeat("c", 253), Host: host},
				LastBackup:      &v1alpha1.BackupSummary{Host: host}, LastRestoreTest: &v1alpha1.RestoreTestSummary{Host: host},
				Drift: &v1alpha1.DriftSummary{}, NewerVersion: &v1alpha1.VersionSummary{},
			}
			SetNodes(&st, tc.nodes)
			text, err := json.Marshal(st)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d bytes with %d of %d nodes", len(text), len(st.Nodes), st.NodeCounts.Total)
			if len(text) > v1alpha1.MaxStatusSize || len(st.Nodes) < tc.listed {
				t.Errorf("%d bytes with %d nodes, want at most %d bytes and at least %d nodes: %s",
					len(text), len(st.Nodes), v1alpha1.MaxStatusSize, tc.listed, tc.reason)
			}
			for _, n := range st.Nodes {
				if len(n.Message) > v1alpha1.MaxNodeMessage {
					t.Errorf("%s has a message of %d bytes", n.Name, len(n.Message))
				}
			}
		})
	}
}
