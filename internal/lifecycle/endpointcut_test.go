package lifecycle

import (
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module"
)

// TestEndpointChange_AfterInterruptedChange: after an interrupted change, a change that was refused before
// is still refused. A change back to the previous endpoint is allowed.
func TestEndpointChange_AfterInterruptedChange(t *testing.T) {
	t.Parallel()
	byName := v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointExternal}
	other, vip := onKeepalived, v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKubeVIP, Address: "192.0.2.102"}
	other.Address = "192.0.2.101"
	type cut struct {
		to   v1alpha1.ControlPlaneEndpoint
		task string // the task that fails
	}
	for _, tc := range []struct {
		name, reason string
		was          v1alpha1.ControlPlaneEndpoint
		cuts         []cut
		now          v1alpha1.ControlPlaneEndpoint
		refused      bool
	}{
		{
			"another address", "workers use the old address, which would be removed", onKeepalived,
			[]cut{{onHAProxy, "endpoint.haproxy"}},
			other, true,
		},
		{
			"another holder", "control planes in the old and the new mode would hold an address",
			onKeepalived,
			[]cut{{onHAProxy, "endpoint.haproxy"}},
			vip, true,
		},
		{
			"another holder than the unfinished change", "control planes in the old and the new mode would hold an address", onHAProxy,
			[]cut{{onKeepalived, "endpoint.name"}},
			vip, true,
		},
		{
			"another holder than the reverted change", "the cleanup was interrupted as well", onHAProxy,
			[]cut{{onKeepalived, "endpoint.name"}, {onHAProxy, "endpoint.retire"}},
			vip, true,
		},
		{"back", "the previous endpoint worked", byName, []cut{{onHAProxy, "endpoint.haproxy"}}, byName, false},
		{
			"to a third mode", "the first endpoint is kept until then", onKeepalived,
			[]cut{{onHAProxy, "endpoint.haproxy"}},
			onExternal, false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, threeAndTwo...)
			apply := func(ep v1alpha1.ControlPlaneEndpoint) Request {
				w.Endpoint = &ep
				return applying(w.Manifest())
			}
			w.Endpoint = &tc.was
			w.create(event.Succeeded)
			for _, c := range tc.cuts {
				for _, m := range w.Hosts {
					m.Refuse = breaking(c.task)
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

// TestRollbackEndpoint_ThatOnlyDNSResolves: after a failed change of mode, nodes are rolled back to an
// endpoint that only DNS resolves.
func TestRollbackEndpoint_ThatOnlyDNSResolves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeAndTwo...)
	w.Endpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointExternal}
	w.create(event.Succeeded)
	was := w.Endpoint
	w.Endpoint = &onHAProxy
	w.Hosts["w2"].Refuse = breaking("endpoint.haproxy")
	w.do(applying(w.Manifest()), event.Failed)
	w.Hosts["w2"].Refuse = nil
	w.rollback(event.Succeeded)
	w.Endpoint = was
	w.wantEndpoint(v1alpha1.EndpointExternal)
	w.whole()
}

// TestEndpointChange_KeepsOldForFailingWorker: the old endpoint is kept as long as a worker may use it, even if
// the other nodes continue without that worker.
func TestEndpointChange_KeepsOldForFailingWorker(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		fails        func(*lifecycletest.Host)
	}{
		{"it fails", "it uses the old endpoint", func(m *lifecycletest.Host) { m.Refuse = breaking("endpoint.haproxy") }},
		{"it is down", "it may return with the old endpoint", func(m *lifecycletest.Host) { m.Down = errDown }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := keepalivedWorld(t)
			w.reachable()
			w.Endpoint = &onHAProxy
			tc.fails(w.Hosts["w2"])
			w.do(despiteErrors(applying(w.Manifest())), event.Partial)
			for _, name := range []string{"cp1", "cp2", "cp3"} {
				if !w.Hosts[name].HasFile(module.KeepalivedManifest) {
					t.Errorf("%s no longer holds the address: %s", name, tc.reason)
				}
			}
			w.Hosts["w2"].Refuse, w.Hosts["w2"].Down = nil, nil
			w.resume(event.Succeeded)
			w.wantEndpoint(v1alpha1.EndpointHAProxy)
			w.whole()
		})
	}
}

// TestRemoveNode_FinishesFailedEndpointChange: removing a node after a failed change of mode also finishes the
// change on all other nodes. No later operation would finish it.
func TestRemoveNode_FinishesFailedEndpointChange(t *testing.T) {
	t.Parallel()
	w := keepalivedWorld(t)
	w.reachable()
	w.Endpoint = &onHAProxy
	w.Hosts["w2"].Refuse = breaking("endpoint.haproxy")
	w.do(applying(w.Manifest()), event.Failed)
	request := DeleteNodesRequest{Name: "prod", Nodes: []string{"w1"}}
	w.do(request, event.Failed)
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		if !w.Hosts[name].HasFile(module.KeepalivedManifest) {
			t.Errorf("%s no longer holds the address that w2 uses", name)
		}
	}
	w.Hosts["w2"].Refuse = nil
	w.do(request, event.Succeeded)
	delete(w.Hosts, "w1")
	w.wantEndpoint(v1alpha1.EndpointHAProxy)
	w.whole()
}

// TestRemoveControlPlane_ContinuesWhenWorkerFails: if no old endpoint has to be removed, a failing worker
// does not block a removal with --ignore-errors.
func TestRemoveControlPlane_ContinuesWhenWorkerFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeAndTwo...)
	w.Endpoint = &onHAProxy
	w.create(event.Succeeded)
	w.Hosts["w2"].Refuse = breaking("endpoint.haproxy")
	w.do(DeleteNodesRequest{Name: "prod", Options: Options{IgnoreErrors: true}, Nodes: []string{"cp3"}}, event.Partial)
	if is := w.API.EtcdRole("cp3"); is != "" || len(w.Hosts["cp3"].AllState()) > 0 {
		t.Errorf("cp3 was not removed: its member is %q, and it has %d files", is, len(w.Hosts["cp3"].AllState()))
	}
}
