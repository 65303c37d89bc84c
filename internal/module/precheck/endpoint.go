package precheck

import (
	"net/netip"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/spec"
)

// checkBalancer reports an external load balancer that a worker cannot reach. On a node
// of a running cluster it is a warning, because the operation may be about to fix it.
func (r *report) checkBalancer() {
	if r.cluster.Spec.ControlPlaneEndpoint.Mode != v1alpha1.EndpointExternal {
		return
	}
	const remedy = "start the load balancer, correct spec.controlPlaneEndpoint.address, or allow connections from the host to it"
	for _, at := range r.silentAddresses(facts.EndpointToCheck(r.cluster, r.host.Spec.Roles)) {
		if r.isOwnHost() {
			r.warn(idEndpointUnreachable, remedy, "cannot reach the load balancer at %s", at)
			continue
		}
		r.fail(idEndpointUnreachable, remedy, "cannot reach the load balancer at %s", at)
	}
}

// checkVirtualAddress reports that the virtual API address is already in use: something
// answers there, and no control plane holds it or could hold it already.
func (r *report) checkVirtualAddress(asked []*facts.Host) {
	ep := r.cluster.Spec.ControlPlaneEndpoint
	ip, err := netip.ParseAddr(ep.Address)
	if err != nil || !spec.HoldsAddress(ep.Mode) {
		return
	}
	const remedy = "write an unused address at spec.controlPlaneEndpoint.address"
	for _, h := range asked {
		if r.host = h; r.isOwnHost() &&
			(slices.Contains(h.Facts.Present, module.KeepalivedManifest) || slices.Contains(h.Facts.Present, module.KubeVIPManifest)) {
			return
		}
	}
	for _, h := range asked {
		r.host = h
		if hasAddress(h, ip) {
			r.fail(idAddressInUse, remedy,
				"already has the address %s on an interface; this address is for the API, and a healthy control plane will hold it", ip)
			return
		}
		places := facts.EndpointToCheck(r.cluster, h.Spec.Roles)
		if silent := r.silentAddresses(slices.Clone(places)); len(silent) < len(places) {
			r.fail(idAddressInUse, remedy, "the API address %s is already in use: something answers there", ip)
			return
		}
	}
}
