package lifecycle

import (
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module"
)

// TestEndpointChangeCutOff: a change that did not come to its end lets nobody
// do what could not be done before it, nor keeps anybody from going back.
func TestEndpointChangeCutOff(t *testing.T) {
	byName := v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointExternal}
	other, vip := onKeepalived, v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKubeVIP, Address: "192.0.2.102"}
	other.Address = "192.0.2.101"
	type cut struct {
		to   v1alpha1.ControlPlaneEndpoint
		task string // that fails
	}
	for _, tc := range []struct {
		name, reason string
		was          v1alpha1.ControlPlaneEndpoint
		cuts         []cut
		now          v1alpha1.ControlPlaneEndpoint
		refused      bool
	}{
		{"another address", "workers go by the old one, which would be gone", onKeepalived, []cut{{onHAProxy, "endpoint.haproxy"}}, other, true},
		{"another holder", "control planes of both would hold an address", onKeepalived, []cut{{onHAProxy, "endpoint.haproxy"}}, vip, true},
		{
			"another holder than what was begun", "control planes of both would hold an address", onHAProxy,
			[]cut{{onKeepalived, "endpoint.name"}},
			vip, true,
		},
		{
			"another holder than what was taken back", "what is to end it was cut off as well", onHAProxy,
			[]cut{{onKeepalived, "endpoint.name"}, {onHAProxy, "endpoint.retire"}},
			vip, true,
		},
		{"back", "it was good before", byName, []cut{{onHAProxy, "endpoint.haproxy"}}, byName, false},
		{
			"on to a third", "what was there before is there until it is tried", onKeepalived,
			[]cut{{onHAProxy, "endpoint.haproxy"}},
			onExternal, false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, threeAndTwo...)
			apply := func(ep v1alpha1.ControlPlaneEndpoint) Request {
				w.endpoint = &ep
				return Request{Kind: operation.Apply, Cluster: w.cluster()}
			}
			w.endpoint = &tc.was
			w.create(event.Succeeded)
			for _, c := range tc.cuts {
				for _, m := range w.machines {
					m.refuse = breaking(c.task)
				}
				w.do(apply(c.to), event.Failed)
			}
			p, err := w.service().Prepare(t.Context(), apply(tc.now), nil)
			switch {
			case tc.refused:
				refusal(t, err, "endpoint-change")
			case err != nil:
				t.Errorf("%v; want it accepted: %s", err, tc.reason)
			default:
				w.prepared(p, nil)
			}
		})
	}
}

// TestEndpointByNameRollback: nodes of a cluster whose way to the API only DNS
// knows go back to it when a change of mode has failed.
func TestEndpointByNameRollback(t *testing.T) {
	w := newWorld(t, threeAndTwo...)
	w.endpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointExternal}
	w.create(event.Succeeded)
	was := w.endpoint
	w.endpoint = &onHAProxy
	w.machines["w2"].refuse = breaking("endpoint.haproxy")
	w.do(Request{Kind: operation.Apply, Cluster: w.cluster()}, event.Failed)
	w.machines["w2"].refuse = nil
	w.rollback(event.Succeeded)
	w.endpoint = was
	w.wantEndpoint(v1alpha1.EndpointExternal)
	w.whole()
}

// TestOldWayStaysForOne: the old way to the API does not end as long as a worker
// may go by it, whatever the others do without that one.
func TestOldWayStaysForOne(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		fails        func(*machine)
	}{
		{"it fails", "it goes by what it had", func(m *machine) { m.refuse = breaking("endpoint.haproxy") }},
		{"it is down", "it is back some day, with the old way", func(m *machine) { m.down = errDown }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := keepalivedWorld(t)
			w.reachable()
			w.endpoint = &onHAProxy
			tc.fails(w.machines["w2"])
			w.do(Request{Kind: operation.Apply, Cluster: w.cluster(), IgnoreErrors: true}, event.Partial)
			for _, name := range []string{"cp1", "cp2", "cp3"} {
				if !w.machines[name].has(module.KeepalivedManifest) {
					t.Errorf("%s does not hold the address any more: %s", name, tc.reason)
				}
			}
			w.machines["w2"].refuse, w.machines["w2"].down = nil, nil
			w.resume(event.Succeeded)
			w.wantEndpoint(v1alpha1.EndpointHAProxy)
			w.whole()
		})
	}
}

// TestNodeLeavesHalfway: to take a node off where a change of mode has failed is
// to go on with that on all others: what would be left of it nobody would finish.
func TestNodeLeavesHalfway(t *testing.T) {
	w := keepalivedWorld(t)
	w.reachable()
	w.endpoint = &onHAProxy
	w.machines["w2"].refuse = breaking("endpoint.haproxy")
	w.do(Request{Kind: operation.Apply, Cluster: w.cluster()}, event.Failed)
	request := Request{Kind: operation.DeleteNodes, Name: "prod", Nodes: []string{"w1"}}
	w.do(request, event.Failed)
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		if !w.machines[name].has(module.KeepalivedManifest) {
			t.Errorf("%s does not hold the address any more, by which w2 goes", name)
		}
	}
	w.machines["w2"].refuse = nil
	w.do(request, event.Succeeded)
	delete(w.machines, "w1")
	w.wantEndpoint(v1alpha1.EndpointHAProxy)
	w.whole()
}

// TestLeavesThoughAWorkerFails: where no old way is left to end, a worker that
// fails keeps nobody, with --ignore-errors.
func TestLeavesThoughAWorkerFails(t *testing.T) {
	w := newWorld(t, threeAndTwo...)
	w.endpoint = &onHAProxy
	w.create(event.Succeeded)
	w.machines["w2"].refuse = breaking("endpoint.haproxy")
	w.do(Request{Kind: operation.DeleteNodes, Name: "prod", Nodes: []string{"cp3"}, IgnoreErrors: true}, event.Partial)
	if is := w.api.etcd("cp3"); is != "" || len(w.machines["cp3"].look()) > 0 {
		t.Errorf("cp3 is still there: its member is %q, and on it are %d things", is, len(w.machines["cp3"].look()))
	}
}
