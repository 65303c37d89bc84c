package lifecycle

import (
	"testing"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/spec"
)

func TestChangeNodes_ResumesAfterKill(t *testing.T) {
	for _, tc := range []struct {
		name    string
		request func(*world) Request
		after   []string
	}{
		{
			"remove", func(*world) Request { return DeleteNodesRequest{Name: "prod", Nodes: []string{"w1"}} },
			[]string{"cp1", "w2"},
		},
		{
			"exchange", func(w *world) Request { return applying(w.of("cp1", "w2", "w3")) },
			[]string{"cp1", "w2", "w3"},
		},
	} {
		w := running(t, []string{"cp1", "w1", "w2", "w3"}, []string{"cp1", "w1", "w2"})
		request := tc.request(w)
		for _, m := range w.killed(t, request) {
			t.Run(tc.name+" "+m.name, func(t *testing.T) {
				t.Parallel()
				k := m.world
				k.useT(t)
				k.goOn(request)
				k.wantHosts(tc.after...)
				k.same(w)
			})
		}
	}
}

// An operation that was killed at any moment can be rolled back.
func TestRollback_AfterKilledChangeOfNodes(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]func(*world) Request{
		"add": func(w *world) Request {
			return AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{w.flag("w3")}}
		},
		"exchange": func(w *world) Request { return applying(w.of("cp1", "w2", "w3")) },
	} {
		w := running(t, []string{"cp1", "w1", "w2", "w3"}, []string{"cp1", "w1", "w2"})
		begun := 0
		for i, m := range w.killed(t, request(w)) {
			if i%4 != 1 {
				continue
			}
			t.Run(name+" "+m.name, func(t *testing.T) {
				k := m.world
				k.useT(t)
				p, err := k.service().PrepareRollback(t.Context(), rollingBack(), nil)
				if !unbegun(err) {
					begun++
					k.apply(k.prepared(p, err), event.Succeeded)
				}
				k.wantHosts("cp1", "w1", "w2")
			})
		}
		if begun == 0 {
			t.Errorf("%s: nothing was rolled back: the operation began in none of the worlds", name)
		}
	}
}

func TestReplaceNode_ResumesAfterKill(t *testing.T) {
	w := running(t, []string{"cp1", "w1"}, []string{"cp1", "w1"})
	w.Hosts["w1"] = lifecycletest.NewHost("w1", "192.0.2.31", w.API)
	w.Hosts["w1"].MachineID = "id-new"
	w.API.MarkNodeLost("w1")
	request := applying(w.Manifest())
	for i, m := range w.killed(t, request) {
		if i%3 != 2 {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			k.goOn(request)
			k.wantHosts("cp1", "w1")
			k.same(w)
		})
	}
}
