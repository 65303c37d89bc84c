package graph

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSortNodes_ReturnsEdgeOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		nodes  int
		edges  [][2]int
		want   []int
		err    string
	}{
		"empty": {reason: "nothing to do is no error"},
		"free":  {reason: "free nodes come by number", nodes: 3, want: []int{0, 1, 2}},
		"diamond": {
			reason: "a node comes after all it waits for", nodes: 4,
			edges: [][2]int{{3, 1}, {3, 2}, {1, 0}, {2, 0}}, want: []int{3, 1, 2, 0},
		},
		"cycle": {reason: "a cycle is named, and only it", nodes: 4, edges: [][2]int{{0, 1}, {1, 2}, {2, 1}, {2, 3}}, err: "a cycle"},
	} {
		t.Run(name, func(t *testing.T) {
			var g Graph
			for i := range tc.nodes {
				g.AddNode(string(rune('a' + i)))
			}
			for _, e := range tc.edges {
				g.AddEdge(e[0], e[1])
			}
			got, err := g.SortNodes()
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("%s: error %v, want %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, d)
			}
		})
	}
}

func TestWalk_KeepsOrder(t *testing.T) {
	var g Graph
	const lanes, steps = 20, 10
	for l := range lanes {
		for s := range steps {
			n := g.AddNode("")
			if s > 0 {
				g.AddEdge(n-1, n)
			}
			_ = l
		}
	}
	last := g.AddNode("join")
	for l := range lanes {
		g.AddEdge(l*steps+steps-1, last)
	}
	var mu sync.Mutex
	at := map[int]int{}
	if err := g.Walk(t.Context(), func(_ context.Context, n int) {
		mu.Lock()
		defer mu.Unlock()
		at[n] = len(at)
	}); err != nil {
		t.Fatal(err)
	}
	if len(at) != g.Len() {
		t.Fatalf("%d of %d nodes ran", len(at), g.Len())
	}
	for n := range g.Len() {
		for _, p := range g.Predecessors(n) {
			if at[p] > at[n] {
				t.Errorf("node %d ran before %d, which it waits for", n, p)
			}
		}
	}
}
