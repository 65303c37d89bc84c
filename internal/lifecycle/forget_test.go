package lifecycle

import (
	"strings"
	"sync/atomic"
	"testing"

	"slipway.dev/slipway/internal/event"
)

// A host that is given up, and of which the cluster hears, is refused before
// anything is touched: it runs, whatever keeps it from being asked.
func TestForgetWhatRuns(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		host         string
		breaks       func(*world, *machine)
		change       func(*Request)
		refused      bool
	}{
		{"cut off", "a firewall stands in the way", "w1", func(_ *world, m *machine) { m.down = errDown }, nil, true},
		{"without the others", "they go without it in vain", "w1", func(_ *world, m *machine) { m.down = errDown }, func(r *Request) { r.IgnoreErrors = true }, true},
		{"unfit", "it answers, and is not what it was", "w1", func(_ *world, m *machine) { m.cluster, m.ledger = "other", true }, nil, true},
		{"a control plane", "its member stays", "cp2", func(_ *world, m *machine) { m.down = errDown }, func(r *Request) { r.IgnoreErrors = true }, true},
		{"forced", "it is known to run", "w1", func(_ *world, m *machine) { m.down = errDown }, func(r *Request) { r.Removal.Force = true }, false},
		{"dead", "the cluster has noticed", "w1", func(w *world, m *machine) { m.down = errDown; w.api.lose("w1") }, nil, false},
		{"no node any more", "nobody runs by that name", "w1", func(w *world, m *machine) { m.down = errDown; w.api.drop("w1") }, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, threeAndTwo, threeAndTwo)
			tc.breaks(w, w.machines[tc.host])
			var touched atomic.Value // several are at once
			for _, m := range w.machines {
				m.touched = func(what string) { touched.Store(what) }
			}
			r := Request{Kind: Remove, Name: "prod", Nodes: []string{tc.host, "w2"}, Forget: true}
			if tc.change != nil {
				tc.change(&r)
			}
			p, err := w.service().Prepare(t.Context(), r, nil)
			if !tc.refused {
				w.apply(w.prepared(p, err), event.Succeeded)
				if w.api.has("/api/v1/nodes/" + tc.host) {
					t.Errorf("%s is still a node: %s", tc.host, tc.reason)
				}
				return
			}
			refusal(t, err, "host-runs")
			if err != nil && (!strings.Contains(err.Error(), "--force") || !strings.Contains(err.Error(), "40 seconds") || strings.Count(err.Error(), "hint:") != 1) {
				t.Errorf("the refusal does not say what to do, once: %v", err)
			}
			if what := touched.Load(); what != nil || w.api.etcd("cp2") != etcdVotes {
				t.Errorf("%v was touched: %s", what, tc.reason)
			}
		})
	}
}
