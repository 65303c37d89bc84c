package health

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/node/op"
)

// problems returns a list with one problem of a host.
func problems(message string) diag.List { return diag.List{{Host: "cp1", Message: message}} }

func TestEvaluate_ShowsEachProblem(t *testing.T) {
	now := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name   string
		change func(*cluster, *v1alpha1.Cluster)
		kind   string
		want   string // status, reason and a part of the message
		urgent string // the reason of NeedsAttention, "" for none
	}{
		{"healthy", nil, "Ready", "True NodesReady ", ""},
		{
			"a node is not ready", func(is *cluster, _ *v1alpha1.Cluster) {
				is.api.Nodes = append(is.api.Nodes, inspect.NodeInfo{Name: "w1", Ready: "NotReady", Message: "kubelet stopped"})
			}, "NodesReady", "False NodesNotReady 1 of 2 nodes are not ready: w1: kubelet stopped", "NodesNotReady",
		},
		{
			"the endpoint does not answer nodes", func(is *cluster, _ *v1alpha1.Cluster) { is.hosts.Hosts[0].Endpoint = "refused" },
			"EndpointAvailable", "False EndpointDoesNotAnswer cp1: refused", "EndpointDoesNotAnswer",
		},
		{
			"no quorum", func(is *cluster, _ *v1alpha1.Cluster) {
				is.hosts.Etcd.Members = append(is.hosts.Etcd.Members, inspect.EtcdMember{Name: "cp2"})
			}, "EtcdHealthy", "False QuorumLost 1 of 2 members answer", "QuorumLost",
		},
		{
			"a slow member", func(is *cluster, _ *v1alpha1.Cluster) { is.hosts.EtcdProblems = problems("the member is behind") },
			"EtcdHealthy", "False MembersUnhealthy cp1: the member is behind", "MembersUnhealthy",
		},
		{
			"a certificate expires soon", func(is *cluster, _ *v1alpha1.Cluster) { is.hosts.CertificateProblems = problems("expires") },
			"CertificatesValid", "True CertificatesExpiring cp1: expires", "CertificatesExpiring",
		},
		{
			"a certificate has expired", func(is *cluster, _ *v1alpha1.Cluster) {
				is.hosts.Certificates[0].Expires = now.Add(-time.Hour)
				is.hosts.CertificateProblems = problems("expired")
			}, "CertificatesValid", "False CertificatesExpired cp1: expired", "CertificatesExpired",
		},
		{
			"old backups", func(is *cluster, _ *v1alpha1.Cluster) { is.hosts.BackupProblems = problems("the snapshot is old") },
			"BackupRecent", "False BackupsNotRecent cp1: the snapshot is old", "BackupsNotRecent",
		},
		{
			"a restore test fails", func(is *cluster, _ *v1alpha1.Cluster) { is.hosts.RestoreTestProblems = problems("test failed") },
			"BackupRecent", "True RestoreTestFailed cp1: test failed", "RestoreTestFailed",
		},
		{
			"a host is down", func(is *cluster, _ *v1alpha1.Cluster) { is.hosts.Hosts[0].Problem = "no route" },
			"HostsReachable", "False HostsUnreachable 1 of 1 hosts: cp1: no route", "HostsUnreachable",
		},
		{
			"an operation has failed", func(_ *cluster, c *v1alpha1.Cluster) {
				stalled := metav1.Condition{Type: "Stalled", Status: metav1.ConditionTrue, Reason: "OperationFailed"}
				c.Status.Conditions = append(c.Status.Conditions, stalled)
			}, "Ready", "True NodesReady ", "OperationFailed",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFleet(t, "prod")
			c := f.object["prod"]
			is := newCluster(c, now)
			is.api, is.answered = &inspect.APIReport{Answers: true, Nodes: []inspect.NodeInfo{{Name: "cp1", Ready: "Ready"}}}, now
			is.hosts, is.asked = healthy(), now
			is.hosts.Backups = true
			is.hosts.Schedules = []inspect.ScheduledHost{{Host: "cp1", AutoSnapshotOutcome: &op.AutoSnapshotOutcome{
				Kept: []op.KeptSnapshot{{Taken: now.Add(-time.Hour)}}, Drill: &op.DrillOutcome{At: now.Add(-time.Minute)},
			}}}
			if tc.change != nil {
				tc.change(is, c)
			}
			p := New(Config{Now: func() time.Time { return now }})
			got, _ := p.evaluate(is, c, now)
			have := meta.FindStatusCondition(got.Conditions, tc.kind)
			if have == nil {
				t.Fatalf("the status has no condition %s", tc.kind)
			}
			text := string(have.Status) + " " + have.Reason + " " + have.Message
			begin, message, _ := strings.Cut(tc.want[strings.Index(tc.want, " ")+1:], " ")
			if !strings.HasPrefix(text, string(have.Status)+" "+begin) || !strings.Contains(text, message) ||
				!strings.HasPrefix(tc.want, string(have.Status)) {
				t.Errorf("%s is %q, want %q", tc.kind, text, tc.want)
			}
			attention := meta.FindStatusCondition(got.Conditions, "NeedsAttention")
			if want := tc.urgent != ""; (attention.Status == metav1.ConditionTrue) != want || want && attention.Reason != tc.urgent {
				t.Errorf("NeedsAttention is %s (%s), want %q", attention.Status, attention.Reason, tc.urgent)
			}
			s := got.Summary
			if s.LastBackup == nil || s.LastRestoreTest == nil || s.NextCertificate == nil ||
				s.LastRestoreTest.Verdict != v1alpha1.RestoreTestPassed {
				t.Errorf("the summary is %+v", s)
			}
		})
	}
}
