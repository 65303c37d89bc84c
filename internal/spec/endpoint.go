package spec

import (
	"net/netip"

	"slipway.dev/slipway/api/v1alpha1"
)

// InternalAddress is where other nodes reach a host.
func InternalAddress(h v1alpha1.Host) string {
	if h.InternalAddress != "" {
		return h.InternalAddress
	}
	return h.Address
}

// EndpointAddress is what the API's name stands for on a host: a control plane
// goes by its own API server, whatever becomes of the others. "" leaves it to
// what the host resolves.
func EndpointAddress(c *v1alpha1.Cluster, h v1alpha1.Host) string {
	ep := c.Spec.ControlPlaneEndpoint
	switch {
	case HasRole(h, v1alpha1.RoleControlPlane):
		return InternalAddress(h)
	case ep.Mode == v1alpha1.EndpointHAProxy:
		return Loopback(h)
	case ep.Address != "" || ep.Mode == v1alpha1.EndpointExternal:
		return ep.Address
	}
	for _, first := range HostsWithRole(c, v1alpha1.RoleControlPlane) {
		return InternalAddress(first)
	}
	return ""
}

// Loopback is a host's own loopback address, of the IP version that nodes
// reach each other by.
func Loopback(h v1alpha1.Host) string {
	if ip, err := netip.ParseAddr(InternalAddress(h)); err == nil && ip.Unmap().Is6() {
		return "::1"
	}
	return "127.0.0.1"
}
