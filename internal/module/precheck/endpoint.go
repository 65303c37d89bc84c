package precheck

import (
	"net/netip"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/spec"
)

// balancer reports a load balancer of the user's that a worker does not reach.
// A node of a cluster that runs may be about to be helped.
func (r *report) balancer() {
	if r.cluster.Spec.ControlPlaneEndpoint.Mode != v1alpha1.EndpointExternal {
		return
	}
	const remedy = "start it, correct spec.controlPlaneEndpoint.address, or let the host through to it"
	for _, at := range r.silent(facts.Endpoint(r.cluster, r.host.Spec.Roles)) {
		if r.ours() {
			r.warn(idEndpointUnreachable, remedy, "does not reach the load balancer at %s", at)
			continue
		}
		r.fail(idEndpointUnreachable, remedy, "does not reach the load balancer at %s", at)
	}
}

// vacant reports that an address which control planes are to hold is another's:
// something answers there, and none of them holds it, or could hold it already.
func (r *report) vacant(asked []*facts.Host) {
	ep := r.cluster.Spec.ControlPlaneEndpoint
	ip, err := netip.ParseAddr(ep.Address)
	if err != nil || !spec.HoldsAddress(ep.Mode) {
		return
	}
	const remedy = "write another address at spec.controlPlaneEndpoint.address, that nothing uses"
	for _, h := range asked {
		if r.host = h; r.ours() && (slices.Contains(h.Facts.Present, module.KeepalivedManifest) || slices.Contains(h.Facts.Present, module.KubeVIPManifest)) {
			return
		}
	}
	for _, h := range asked {
		r.host = h
		if owns(h, ip) {
			r.fail(idAddressInUse, remedy, "has the address %s on an interface; it is to be the API's, on whichever control plane is well", ip)
			return
		}
		places := facts.Endpoint(r.cluster, h.Spec.Roles)
		if silent := r.silent(slices.Clone(places)); len(silent) < len(places) {
			r.fail(idAddressInUse, remedy, "finds somebody at %s, which is to be the API's address", ip)
			return
		}
	}
}
