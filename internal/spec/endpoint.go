package spec

import (
	"cmp"
	"net/netip"

	"slipway.dev/slipway/api/v1alpha1"
)

// InternalAddress returns the address of a host for other nodes.
func InternalAddress(h v1alpha1.Host) string {
	if h.InternalAddress != "" {
		return h.InternalAddress
	}
	return h.Address
}

// HoldsAddress reports whether in a mode one control plane at a time holds the API
// address.
func HoldsAddress(mode v1alpha1.EndpointMode) bool {
	return mode == v1alpha1.EndpointKeepalived || mode == v1alpha1.EndpointKubeVIP
}

// BringsAddress reports whether in a mode nodes have an API address that exists only
// through Slipway.
func BringsAddress(mode v1alpha1.EndpointMode) bool {
	return HoldsAddress(mode) || mode == v1alpha1.EndpointUpdater
}

// EndpointAddress returns the address of the API name on a host: a control plane uses its
// own API server, whatever the state of the others. "" means that the host resolves the
// name.
func EndpointAddress(c *v1alpha1.Cluster, h v1alpha1.Host) string {
	ep := c.Spec.ControlPlaneEndpoint
	switch {
	case HasRole(h, v1alpha1.RoleControlPlane):
		return InternalAddress(h)
	case ep.Mode == v1alpha1.EndpointHAProxy:
		return LoopbackAddress(h)
	case ep.Address != "" || ep.Mode == v1alpha1.EndpointExternal:
		return ep.Address
	}
	for _, first := range HostsWithRole(c, v1alpha1.RoleControlPlane) {
		return InternalAddress(first)
	}
	return ""
}

// LoopbackAddress returns the loopback address of a host, in the IP version that nodes use among
// each other.
func LoopbackAddress(h v1alpha1.Host) string {
	if ip, err := netip.ParseAddr(InternalAddress(h)); err == nil && ip.Unmap().Is6() {
		return "::1"
	}
	return "127.0.0.1"
}

// setEndpointDefaults sets the defaults of a mode. It runs after the defaults of the
// networks.
func setEndpointDefaults(c *v1alpha1.Cluster) {
	ep := &c.Spec.ControlPlaneEndpoint
	switch ep.Mode {
	case v1alpha1.EndpointUpdater:
		if band, ok := staticBand(c.Spec.Network.ServiceCIDR[:1], isIPv4(c.Spec.Network.ServiceCIDR[0])); ok {
			setDefault(&ep.Address, band.first.Next().String())
		}
	case v1alpha1.EndpointKeepalived:
		if ip, err := netip.ParseAddr(ep.Address); err == nil {
			bytes := ip.AsSlice()
			setDefault(&ep.RouterID, cmp.Or(int(bytes[len(bytes)-1]), maxRouterID))
		}
	case v1alpha1.EndpointKubeVIP:
		if ep.KubeVIP == nil {
			ep.KubeVIP = &v1alpha1.KubeVIP{}
		}
		setDefault(&ep.KubeVIP.Announce, AnnounceARP)
	}
}

func isIPv4(cidr string) bool {
	p, err := netip.ParsePrefix(cidr)
	return err == nil && p.Addr().Is4()
}

// A band is a part of a range of service addresses.
type band struct {
	first, last netip.Addr
	// taken lists the addresses of the API and of DNS.
	taken []netip.Addr
}

// staticBand returns the part of the service range of an IP version from which the API
// server assigns addresses last: min(max(16, size/16), 256) of them. See the Kubernetes
// documentation, "Service ClusterIP allocation".
func staticBand(ranges []string, four bool) (band, bool) {
	for _, text := range ranges {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4() != four {
			continue
		}
		size := 256
		if bits := p.Addr().BitLen() - p.Bits(); bits < 12 {
			size = max(16, 1<<bits/16)
			size = min(size, 1<<bits-2) // neither the network's address nor the last
		}
		b := band{first: p.Masked().Addr().Next()}
		b.last = b.first
		for n := 1; n < size; n++ {
			b.last = b.last.Next()
			if n == 9 { // kubeadm uses the tenth address for DNS
				b.taken = []netip.Addr{b.first, b.last}
			}
		}
		return b, true
	}
	return band{}, false
}
