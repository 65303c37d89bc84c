package spec

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// How kube-vip announces its address.
const (
	AnnounceARP = "arp"
	AnnounceBGP = "bgp"
)

// The limits of VRRP router IDs; see RFC 5798, 5.2.3.
const (
	minRouterID = 1
	maxRouterID = 255
)

// interfaceName matches names that Linux accepts and that need no quotes in a
// configuration file.
var interfaceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}$`)

// An endpointValidator checks the control plane endpoint.
type endpointValidator struct{ *validator }

func (v endpointValidator) checkEndpoint() {
	e, path := v.c.Spec.ControlPlaneEndpoint, "spec.controlPlaneEndpoint"
	controlPlanes := len(HostsWithRole(v.c, v1alpha1.RoleControlPlane))
	if e.Mode == v1alpha1.EndpointNone && controlPlanes > 1 {
		v.refuse(idEndpointMode, path+".mode",
			fmt.Sprintf("mode none cannot serve %d control planes: nodes would use only one of them", controlPlanes),
			"use haproxy, or another mode that supports several control planes")
	}
	v.checkOneOf(path+".mode", string(e.Mode), []string{
		string(v1alpha1.EndpointNone), string(v1alpha1.EndpointExternal), string(v1alpha1.EndpointHAProxy),
		string(v1alpha1.EndpointUpdater), string(v1alpha1.EndpointKeepalived), string(v1alpha1.EndpointKubeVIP),
	}, nil)
	_, err := netip.ParseAddr(e.Domain)
	if err == nil && v.recorded != nil && v.recorded.Spec.ControlPlaneEndpoint.Domain == e.Domain {
		v.warn(idInvalidName, path+".domain", e.Domain+" is an address, not a name; the existing cluster keeps it",
			"use a name for the next cluster: hosts files cannot redirect an address")
	} else if err == nil {
		v.refuse(idInvalidName, path+".domain", e.Domain+" is an address, but domain must be a name: hosts files cannot redirect an address",
			"move the address to the field address; leave domain out for "+defaultDomain(v.c.Name))
	} else if e.Domain != defaultDomain(v.c.Name) {
		v.checkDomain(path+".domain", e.Domain)
	}
	for i, h := range v.c.Spec.Hosts {
		if h.Name != "" && h.Name == e.Domain {
			v.refuse(idConflictingFields, path+".domain", e.Domain+" is the name of hosts["+strconv.Itoa(i)+"]",
				"use a separate name for the control plane")
		}
	}
	v.checkEndpointAddress(e, path)
	v.checkPort(path+".port", e.Port)
	v.checkVirtualAddress(e, path)
}

func (v endpointValidator) checkEndpointAddress(e v1alpha1.ControlPlaneEndpoint, path string) {
	path += ".address"
	switch {
	case e.Mode == v1alpha1.EndpointExternal && e.Address == "" && e.Domain == defaultDomain(v.c.Name):
		v.refuse(idMissingField, path, "mode external needs the address of the load balancer",
			"write the address, or a domain that every host resolves to it")
	case HoldsAddress(e.Mode) && e.Address == "":
		v.refuse(idMissingField, path, "mode "+string(e.Mode)+" needs an address that a control plane can hold",
			"write a free address in the network of the control planes")
	case e.Mode == v1alpha1.EndpointNone && e.Address != "":
		v.refuse(idConflictingFields, path, "mode none uses the control plane's own address", "leave address out, or use mode external")
	case e.Mode == v1alpha1.EndpointHAProxy && e.Address != "":
		v.refuse(idConflictingFields, path, "mode haproxy has no address: each worker has its own list of control planes",
			"leave address out, or use mode external")
	case e.Address != "":
		ip, err := netip.ParseAddr(e.Address)
		if err != nil {
			v.refuse(idInvalidAddress, path, strconv.Quote(e.Address)+" is not an IP address", "write a name in the field domain")
			return
		}
		v.checkAPIAddress(e.Mode, ip, path)
	}
}

// checkAPIAddress checks an address according to its future holder.
func (v endpointValidator) checkAPIAddress(mode v1alpha1.EndpointMode, ip netip.Addr, path string) {
	nobodys := ip.IsLoopback() || ip.IsUnspecified() || ip.IsMulticast()
	switch {
	case mode == v1alpha1.EndpointExternal && nobodys:
		// An earlier load balancer of Slipway at a loopback address would look like the
		// user's, until it is removed.
		v.refuse(idInvalidAddress, path, ip.String()+" cannot be reached by all workers and by you: it is not a load balancer's address",
			"write the address of the load balancer; mode haproxy runs one on each worker")
	case HoldsAddress(mode):
		if nobodys || ip.IsLinkLocalUnicast() {
			v.refuse(idInvalidAddress, path, ip.String()+" cannot be reached by other hosts",
				"write a free address in the network of the control planes")
		}
		for i, h := range v.c.Spec.Hosts {
			for _, own := range []string{h.Address, h.InternalAddress} {
				if other, err := netip.ParseAddr(own); err == nil && other.Unmap() == ip.Unmap() {
					v.refuse(idDuplicateAddress, path,
						ip.String()+" is the address of hosts["+strconv.Itoa(i)+"] ("+h.Name+")", "use a free address for the endpoint")
					return
				}
			}
		}
	case mode == v1alpha1.EndpointUpdater:
		v.checkServiceAddress(ip, path)
	}
}

// checkServiceAddress requires an address that the API server does not assign to another
// Service: from the part of the range that it uses last, and not one of its own two
// addresses.
func (v endpointValidator) checkServiceAddress(ip netip.Addr, path string) {
	band, ok := staticBand(v.c.Spec.Network.ServiceCIDR, ip.Is4())
	if !ok {
		v.refuse(idInvalidAddress, path, ip.String()+" is not in a range of spec.network.serviceCIDR",
			"write the address of a Service, which mode updater needs, or leave the field out")
		return
	}
	if ip.Less(band.first) || band.last.Less(ip) || slices.Contains(band.taken, ip) {
		v.refuse(idInvalidAddress, path, ip.String()+" can belong to another Service",
			fmt.Sprintf("write an address from %s to %s except %s, or leave the field out",
				band.first, band.last, joinAddresses(band.taken)))
	}
}

// checkVirtualAddress checks the settings of an address that moves between control planes.
func (v endpointValidator) checkVirtualAddress(e v1alpha1.ControlPlaneEndpoint, path string) {
	if e.Interface != "" && !HoldsAddress(e.Mode) {
		v.refuse(idConflictingFields, path+".interface", "in mode "+string(e.Mode)+" control planes do not hold an address",
			"leave the field out; only keepalived and kube-vip use it")
	} else if e.Interface != "" && !interfaceName.MatchString(e.Interface) {
		v.refuse(idInvalidName, path+".interface", strconv.Quote(e.Interface)+" is not a valid interface name",
			"run 'ip link' on a control plane to list the interfaces")
	}
	switch {
	case e.RouterID != 0 && e.Mode != v1alpha1.EndpointKeepalived:
		v.refuse(idConflictingFields, path+".routerID", "only mode keepalived uses a VRRP router ID", "leave it out")
	case e.RouterID != 0 && (e.RouterID < minRouterID || e.RouterID > maxRouterID):
		v.refuse(idInvalidValue, path+".routerID", strconv.Itoa(e.RouterID)+" is not a valid router ID",
			fmt.Sprintf("use %d to %d, and an ID that no other VRRP router on this network uses", minRouterID, maxRouterID))
	}
	v.checkKubeVIP(e, path)
}

func (v endpointValidator) checkKubeVIP(e v1alpha1.ControlPlaneEndpoint, path string) {
	k := e.KubeVIP
	path += ".kubeVIP"
	if k == nil {
		return
	}
	if e.Mode != v1alpha1.EndpointKubeVIP {
		v.refuse(idConflictingFields, path, "kubeVIP is set, but the mode is "+string(e.Mode), "remove the settings, or use mode kube-vip")
		return
	}
	v.checkOneOf(path+".announce", k.Announce, []string{AnnounceARP, AnnounceBGP}, nil)
	switch {
	case k.Announce == AnnounceBGP && (k.BGP == nil || len(k.BGP.Peers) == 0):
		v.refuse(idMissingField, path+".bgp", "announce: bgp needs at least one BGP router", "write as, and peers with address and as")
	case k.Announce != AnnounceBGP && k.BGP != nil:
		v.refuse(idConflictingFields, path+".bgp", "bgp is set, but the address is announced through ARP",
			"write announce: bgp, or remove the BGP settings")
	}
	if k.BGP == nil {
		return
	}
	v.checkAutonomousSystem(path+".bgp.as", k.BGP.AS)
	peers := entries{}
	for i, peer := range k.BGP.Peers {
		at := yamlfile.IndexPath(path+".bgp.peers", i)
		v.checkRepeated(diag.Error, peers, at+".address", addressMeaning(peer.Address), peer.Address)
		if _, err := netip.ParseAddr(peer.Address); err != nil {
			v.refuse(idInvalidAddress, at+".address", strconv.Quote(peer.Address)+" is not an IP address", "")
		}
		v.checkAutonomousSystem(at+".as", peer.AS)
	}
}

func (v endpointValidator) checkAutonomousSystem(path string, as int) {
	if as < 1 || int64(as) > 1<<32-1 {
		v.refuse(idInvalidValue, path, strconv.Itoa(as)+" is not a valid autonomous system number",
			"use 1 to 4294967295; 64512 to 65534 are private")
	}
}

func joinAddresses(list []netip.Addr) string {
	var out []string
	for _, a := range list {
		out = append(out, a.String())
	}
	return strings.Join(out, " and ")
}
