package lifecycle

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/module"
)

// hideNodes makes the saved cluster look like a large one: its status does not list ready nodes.
func (w *world) hideNodes() {
	w.t.Helper()
	clusters := w.service().Records.Clusters()
	c, err := clusters.Load(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	if err := clusters.SaveNodes(w.t.Context(), "prod", c.Status.Nodes); err != nil {
		w.t.Fatal(err)
	}
	c.Status.Nodes = nil
	if err := clusters.SaveStatus(w.t.Context(), "prod", c.Status); err != nil {
		w.t.Fatal(err)
	}
}

// TestNodes_AreCompleteIfStatusListsFew asks for everything that depends on the nodes of a saved
// cluster, before and after its status lists none.
func TestNodes_AreCompleteIfStatusListsFew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1", "w2", "w3")
	w.Hosts["w3"].Refuse = breaking("join.kubelet-start")
	w.do(creating(w.of("cp1")), event.Succeeded)
	w.do(AddNodesRequest{Subject: Subject{Cluster: w.Manifest()}, Options: Options{IgnoreErrors: true}}, event.Partial)
	w.Hosts["cp1"].APISilent = true // versions are from the saved state
	type answers struct {
		Ready    int
		Versions map[string]string
		Touched  []string // hosts that may be left behind
		Leaving  []string // machine ids
	}
	ask := func() (a answers) {
		s := w.service()
		list, err := s.Clusters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a.Ready = list[0].Ready
		info, err := s.Info(t.Context(), "prod", nil)
		if err != nil {
			t.Fatal(err)
		}
		a.Versions = map[string]string{}
		for _, n := range info.Nodes {
			a.Versions[n.Name] = n.Version
		}
		c, err := s.Records.Clusters().Load(t.Context(), "prod")
		if err != nil {
			t.Fatal(err)
		}
		touched, _, err := s.past.TouchedHosts(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range touched {
			a.Touched = append(a.Touched, h.Name)
		}
		p := &prepared{svc: s, recorded: c}
		if p.seen, err = s.Records.Clusters().LoadNodes(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		for _, h := range p.leaving(&v1alpha1.Cluster{}) {
			a.Leaving = append(a.Leaving, h.MachineID)
		}
		return a
	}
	before := ask()
	if d := cmp.Diff([]string{"w3"}, before.Touched); d != "" || before.Ready != 3 || before.Versions["w1"] == "" {
		t.Errorf("the status does not have three nodes: %+v", before)
	}
	w.hideNodes()
	if d := cmp.Diff(before, ask()); d != "" {
		t.Errorf("(-complete status +status without nodes):\n%s", d)
	}
}

// TestNoteNodes_SavesAllNodesOfLargeCluster saves the nodes of a cluster that grows and shrinks.
func TestNoteNodes_SavesAllNodesOfLargeCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	w.create(event.Succeeded)
	p := &prepared{svc: w.service(), env: module.Env{Cluster: w.Manifest()}}
	for _, tc := range []struct {
		name, reason string
		total        int
		listed       int
	}{
		{"small", "the status has all nodes", 3, 3},
		{"large", "the status has the nodes that are not ready", 1000, 1},
		{"small again", "the saved list is not used", 2, 2},
	} {
		var nodes []v1alpha1.NodeStatus
		for i := range tc.total {
			nodes = append(nodes, v1alpha1.NodeStatus{Name: fmt.Sprintf("w%d", i), Ready: i != 1, Version: "v1.37.1"})
		}
		c := &v1alpha1.Cluster{}
		c.Name = "prod"
		if err := p.noteNodes(t.Context(), &c.Status, nodes); err != nil {
			t.Fatal(err)
		}
		got, err := p.svc.Records.Clusters().LoadNodes(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(nodes, got); d != "" || len(c.Status.Nodes) != tc.listed || c.Status.NodeCounts.Total != tc.total {
			t.Errorf("%s: %d nodes of %d are listed, want %d: %s; saved nodes (-want +got):\n%s",
				tc.name, len(c.Status.Nodes), c.Status.NodeCounts.Total, tc.listed, tc.reason, d)
		}
	}
}
