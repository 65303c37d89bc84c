package spec

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// Limits of Kubernetes: the API server accepts at most 20 bits of service addresses,
// kubeadm needs at least 10 addresses, the controller manager gives each node a /24 or
// /64 and handles at most 16 bits of nodes.
const (
	maxServiceBits = 20
	minServiceBits = 4
	nodeMask4      = 24
	nodeMask6      = 64
	// The argument of the controller manager; with dual stack "-ipv4" and "-ipv6" follow.
	nodeMaskArgument   = "node-cidr-mask-size"
	controllerArgsPath = "spec.kubernetes.controllerManager.extraArgs"
	maxNodeMaskDiff    = 16
)

// A networkValidator checks the network plugin and the address ranges.
type networkValidator struct{ *validator }

func (v networkValidator) checkNetwork() {
	n, path := v.c.Spec.Network, "spec.network"
	v.checkOneOf(path+".plugin", n.Plugin, []string{pluginFlannel, pluginNone}, []string{"calico", "cilium", "kube-ovn"})
	v.checkFlannel()
	pods := v.parseCIDRs(path+".podCIDR", n.PodCIDR)
	services := v.parseCIDRs(path+".serviceCIDR", n.ServiceCIDR)
	v.checkPodSizes(pods)
	v.checkServiceSizes(services)
	v.checkIPFamilies(pods, services)
	v.checkOverlaps(pods, services)
}

func (v networkValidator) checkFlannel() {
	f, path := v.c.Spec.Network.Flannel, "spec.network.flannel"
	if plugin := v.c.Spec.Network.Plugin; plugin == pluginNone && (f.Backend != "" || f.MTU != 0) {
		v.refuse(idConflictingFields, path, `flannel has settings, but the plugin is "none"`, "remove the settings, or use plugin flannel")
	}
	v.checkOneOf(path+".backend", f.Backend, []string{backendVXLAN, backendHostGW}, nil)
	if f.MTU != 0 && (f.MTU < 576 || f.MTU > 65535) {
		v.refuse(idInvalidValue, path+".mtu", strconv.Itoa(f.MTU)+" is not an MTU", "use 576 to 65535, or 0 for the default of flannel")
	}
}

// A cidr is one valid range and its place.
type cidr struct {
	netip.Prefix
	path string
}

// parseCIDRs parses a single range, or a pair of IPv4 and IPv6.
func (v networkValidator) parseCIDRs(path string, list []string) []cidr {
	var out []cidr
	for i, text := range list {
		at := yamlfile.IndexPath(path, i)
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			hint := "write address/bits, such as 10.244.0.0/16"
			if _, err := netip.ParseAddr(text); err == nil {
				hint = "add the prefix length, such as " + text + "/16"
			}
			v.refuse(idInvalidCIDR, at, strconv.Quote(text)+" is not an IP range", hint)
		case p.Addr().Is4In6():
			v.refuse(idInvalidCIDR, at, text+" is an IPv4 address in IPv6 notation", "write it as IPv4")
		case p != p.Masked():
			v.refuse(idInvalidCIDR, at, text+" has bits outside its mask", "did you mean "+p.Masked().String()+"?")
		default:
			out = append(out, cidr{p, at})
		}
	}
	if len(list) > 2 {
		v.refuse(idIPFamilies, path, fmt.Sprintf("%d ranges are given", len(list)),
			"give one range, or for dual stack one IPv4 and one IPv6 range")
	}
	if len(out) == 2 && out[0].Addr().Is4() == out[1].Addr().Is4() {
		v.refuse(idIPFamilies, path, "both ranges have the same IP version", "give one range, or for dual stack one IPv4 and one IPv6 range")
	}
	return out
}

func (v networkValidator) checkPodSizes(pods []cidr) {
	v.checkNodeMasks(pods)
	for _, p := range pods {
		mask := v.checkNodeMask(p, len(pods) == 2)
		if mask == 0 {
			continue
		}
		v.checkPodAddresses(p, mask)
		hosts := len(v.c.Spec.Hosts)
		switch diff := mask - p.Bits(); {
		case diff < 0 || diff < maxNodeMaskDiff && 1<<diff < hosts:
			v.refuse(idCIDRSize, p.path, fmt.Sprintf("%s is too small: each of %d hosts needs a /%d from it", p, hosts, mask),
				fmt.Sprintf("use a /%d or larger", mask-bitsFor(hosts)))
		case diff > maxNodeMaskDiff:
			v.refuse(idCIDRSize, p.path, fmt.Sprintf("%s is too large: Kubernetes supports at most a /%d", p, mask-maxNodeMaskDiff),
				fmt.Sprintf("use a /%d or smaller", mask-maxNodeMaskDiff))
		}
	}
}

// checkPodAddresses warns if a node can have more pods than its part of a range has addresses:
// all except three, for the network, its bridge, and broadcasts.
func (v networkValidator) checkPodAddresses(p cidr, mask int) {
	const reserved, usual = 3, 110
	at := "spec.kubernetes.kubelet.config[maxPods]"
	pods, ok := asNumber(v.c.Spec.Kubernetes.Kubelet.Config["maxPods"])
	if !ok {
		pods, at = usual, p.path
	}
	bits := p.Addr().BitLen() - mask
	if v.c.Spec.Network.Plugin != pluginFlannel || bits > 16 || pods <= float64(int(1)<<bits-reserved) {
		return
	}
	name := nodeMaskArgument
	if len(v.c.Spec.Network.PodCIDR) > 1 {
		name += map[bool]string{true: "-ipv4", false: "-ipv6"}[p.Addr().Is4()]
	}
	v.warn(idCIDRSize, at,
		fmt.Sprintf("each node has %d pod addresses (a /%d of %s), but maxPods is %.0f", max(1<<bits-reserved, 0), mask, p, pods),
		fmt.Sprintf("lower maxPods, or give nodes more addresses: controllerManager.extraArgs: {%s: \"%d\"}", name,
			p.Addr().BitLen()-bitsFor(int(pods)+reserved)))
}

// checkNodeMask returns the mask size of each node's part of a pod range: the default of the
// controller manager, or its argument. 0 means that it is invalid.
func (v networkValidator) checkNodeMask(p cidr, dual bool) int {
	mask, family := nodeMask4, "-ipv4"
	if p.Addr().Is6() {
		mask, family = nodeMask6, "-ipv6"
	}
	args := v.c.Spec.Kubernetes.ControllerManager.ExtraArgs
	name := nodeMaskArgument + family
	if _, ok := args[name]; !ok && !dual {
		name = nodeMaskArgument
	}
	text, ok := args[name]
	if !ok {
		return mask
	}
	bits, err := strconv.Atoi(text)
	if err != nil || bits < 1 || bits > p.Addr().BitLen() {
		v.refuse(idCIDRSize, yamlfile.KeyPath(controllerArgsPath, name),
			strconv.Quote(text)+" is not a valid mask size for a node's range", fmt.Sprintf("write a number such as %d", mask))
		return 0
	}
	return bits
}

// checkNodeMasks rejects arguments with which the controller manager does not start. The
// argument without an IP version cannot be used with others, or for two ranges. An argument
// for an IP version needs a pod range of that version.
func (v networkValidator) checkNodeMasks(pods []cidr) {
	args := v.c.Spec.Kubernetes.ControllerManager.ExtraArgs
	_, plain := args[nodeMaskArgument]
	for _, family := range []string{"-ipv4", "-ipv6"} {
		name := nodeMaskArgument + family
		has := slices.ContainsFunc(pods, func(p cidr) bool { return p.Addr().Is6() == (family == "-ipv6") })
		switch _, ok := args[name]; {
		case ok && plain:
			v.refuse(idConflictingFields, yamlfile.KeyPath(controllerArgsPath, name),
				"the controller manager does not accept it together with "+nodeMaskArgument, "leave out "+nodeMaskArgument)
		case ok && !has:
			v.refuse(idConflictingFields, yamlfile.KeyPath(controllerArgsPath, name), "the pods have no range of this IP version", "leave it out")
		}
	}
	if plain && len(pods) == 2 {
		v.refuse(idConflictingFields, yamlfile.KeyPath(controllerArgsPath, nodeMaskArgument),
			"the controller manager does not accept it for two ranges", "write "+nodeMaskArgument+"-ipv4 and "+nodeMaskArgument+"-ipv6")
	}
}

// bitsFor returns how many bits are needed for n values.
func bitsFor(n int) int {
	bits := 0
	for 1<<bits < n {
		bits++
	}
	return bits
}

func (v networkValidator) checkServiceSizes(services []cidr) {
	for _, s := range services {
		all := s.Addr().BitLen()
		switch bits := all - s.Bits(); {
		case bits > maxServiceBits:
			v.refuse(idCIDRSize, s.path, fmt.Sprintf("%s is too large: the API server supports at most a /%d", s, all-maxServiceBits),
				fmt.Sprintf("use a /%d to /%d", all-maxServiceBits, all-minServiceBits))
		case bits < minServiceBits:
			v.refuse(idCIDRSize, s.path, fmt.Sprintf("%s is too small: the services of the cluster need at least a /%d", s, all-minServiceBits),
				fmt.Sprintf("use a /%d to /%d", all-maxServiceBits, all-minServiceBits))
		}
	}
}

// checkIPFamilies requires matching IP versions of pods, services and nodes: the versions of the
// services need pods, and the first of them needs nodes.
func (v networkValidator) checkIPFamilies(pods, services []cidr) {
	if len(pods) == 0 || len(services) == 0 {
		return
	}
	has4, has6 := false, false
	for _, p := range pods {
		has4, has6 = has4 || p.Addr().Is4(), has6 || p.Addr().Is6()
	}
	for _, s := range services {
		if s.Addr().Is4() && !has4 || s.Addr().Is6() && !has6 {
			v.refuse(idIPFamilies, s.path, ipVersion(s.Addr())+" services need "+ipVersion(s.Addr())+" pods",
				"add a range of that version to podCIDR")
		}
	}
	if len(pods) == 2 && len(services) == 2 && pods[0].Addr().Is4() != services[0].Addr().Is4() {
		v.refuse(idIPFamilies, services[0].path,
			"the first service range is "+ipVersion(services[0].Addr())+", but the first pod range is "+ipVersion(pods[0].Addr()),
			"write both in the same order: the first is the primary IP version of the cluster")
	}
	for i, h := range v.c.Spec.Hosts {
		ip, err := netip.ParseAddr(h.InternalAddress)
		if err == nil && ip.Unmap().Is4() != pods[0].Addr().Is4() {
			v.refuse(idIPFamilies, yamlfile.IndexPath("spec.hosts", i)+".internalAddress",
				h.InternalAddress+" is "+ipVersion(ip)+", but the primary IP version of the pods is "+ipVersion(pods[0].Addr()),
				"give hosts addresses of the same version as the first pod range")
		}
	}
}

func ipVersion(ip netip.Addr) string {
	if ip.Unmap().Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// checkOverlaps finds addresses with two meanings.
func (v networkValidator) checkOverlaps(pods, services []cidr) {
	for _, s := range services {
		for _, p := range pods {
			if s.Overlaps(p.Prefix) {
				v.refuse(idCIDROverlap, s.path, fmt.Sprintf("%s overlaps the pod range %s", s, p),
					"use ranges for pods and services that are not used elsewhere")
			}
		}
	}
	v.checkOverlap(pods, "pods")
	v.checkOverlap(services, "services")
}

func (v networkValidator) checkOverlap(ranges []cidr, what string) {
	for i, h := range v.c.Spec.Hosts {
		for _, r := range ranges {
			for _, f := range []struct{ name, value string }{{"address", h.Address}, {"internalAddress", h.InternalAddress}} {
				ip, err := netip.ParseAddr(f.value)
				if err != nil || !r.Contains(ip.Unmap()) || f.name == "internalAddress" && h.Address == h.InternalAddress {
					continue
				}
				v.refuse(idCIDROverlap, yamlfile.IndexPath("spec.hosts", i)+"."+f.name,
					fmt.Sprintf("%s is in the range of the %s, %s", f.value, what, r), "use a range for the "+what+" that contains no host")
			}
		}
	}
	if e := v.c.Spec.ControlPlaneEndpoint; e.Address != "" && e.Mode != v1alpha1.EndpointUpdater { // this is the address of a Service
		ip, err := netip.ParseAddr(e.Address)
		for _, r := range ranges {
			if err == nil && r.Contains(ip.Unmap()) {
				v.refuse(idCIDROverlap, "spec.controlPlaneEndpoint.address", fmt.Sprintf("%s is in the range of the %s, %s", e.Address, what, r),
					"use a range for the "+what+" that does not contain this address")
			}
		}
	}
}
