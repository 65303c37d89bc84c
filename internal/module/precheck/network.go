package precheck

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// internalAddress returns the address at which other nodes reach a host, as text.
func internalAddress(h *facts.Host) string { return spec.InternalAddress(h.Spec) }

// checkAddresses checks the address at which others reach the host. The host must have
// it on an interface, because the kubelet and etcd bind to it.
func (r *report) checkAddresses() {
	var have []string
	for _, p := range facts.Addresses(r.host.Facts) {
		have = append(have, p.Addr().String())
	}
	has := "it has no address that other nodes can use"
	remedy := "give the host an address on the network of the other nodes"
	if len(have) > 0 {
		has = "it has " + joinItems(have)
		remedy = fmt.Sprintf("write one of these addresses at %s", r.fieldPath("internalAddress"))
	}
	ip, err := netip.ParseAddr(internalAddress(r.host))
	switch {
	case err != nil:
		r.fail(idInternalAddress, remedy, "%q is not an address that other nodes can reach; %s", internalAddress(r.host), has)
	case ip.IsLoopback():
		r.fail(idInternalAddress, remedy, "%s is the local host on every host, so other nodes cannot reach it; %s", ip, has)
	case !hasAddress(r.host, ip):
		r.fail(idInternalAddress, remedy, "has no interface with the address %s; %s", ip, has)
	case r.isNode() && hostroles.UsesFlannel(r.cluster) && facts.LinkWithAddress(r.host.Facts, ip.String()) == "lo":
		r.failIfNew()(idInternalAddress, remedy, "has the address %s only on lo; flannel needs it on the interface to the other nodes", ip)
	case len(r.cluster.Spec.Network.PodCIDR) > 1:
		r.checkDualStack(ip, has)
	}
}

// checkDualStack reports a host without an address of each IP version. Flannel uses one
// interface for both.
func (r *report) checkDualStack(ip netip.Addr, has string) {
	version := "IPv6"
	if ip.Unmap().Is6() {
		version = "IPv4"
	}
	f := r.host.Facts
	other := facts.OtherAddress(f, ip.String())
	switch link := facts.LinkWithAddress(f, ip.String()); {
	case other == "":
		r.fail(idDualStack, "add an address that the other nodes can reach, or write one range each at spec.network.podCIDR and serviceCIDR",
			"has no %s address, but with dual stack a node needs one address of each IP version; %s", version, has)
	case r.isNode() && hostroles.UsesFlannel(r.cluster) && facts.LinkWithAddress(f, other) != link:
		r.failIfNew()(idDualStack, fmt.Sprintf("add an %s address to %s; "+
			"or write one range each at spec.network.podCIDR and serviceCIDR", version, link),
			"has its %s address %s on %s and its other address %s on %s; "+
				"flannel needs both on one interface", version, other, facts.LinkWithAddress(f, other), ip, link)
	}
}

// failIfNew returns the function that reports a finding which prevents a host from
// joining. On a running node it is a warning, because an error would block all other
// changes of the cluster.
func (r *report) failIfNew() func(id, remedy, format string, args ...any) {
	if r.isOwnHost() {
		return r.warn
	}
	return r.fail
}

func hasAddress(h *facts.Host, ip netip.Addr) bool {
	return slices.ContainsFunc(h.Facts.Addresses, func(a op.Address) bool {
		p, err := netip.ParsePrefix(a.Prefix)
		return err == nil && p.Addr().Unmap() == ip.Unmap()
	})
}

// checkNetworks compares the pod and service networks with the networks and routes of
// the host. The pod network of this cluster itself does not count.
func (r *report) checkNetworks() {
	f := r.host.Facts
	check := func(name, field string, cidrs []string) {
		for _, text := range cidrs {
			cidr, err := netip.ParsePrefix(text)
			if err != nil { // the validation of the file has reported it
				continue
			}
			if r.isOwnHost() && name == "pod" {
				continue
			}
			r.checkOverlap(name, field, cidr.Masked(), f.Addresses, f.Routes)
		}
	}
	check("pod", "spec.network.podCIDR", r.cluster.Spec.Network.PodCIDR)
	check("service", "spec.network.serviceCIDR", r.cluster.Spec.Network.ServiceCIDR)
	r.checkServiceRoute()
}

// checkServiceRoute reports a host whose own programs cannot reach Services: the kernel
// looks for a route to the address before the rules of kube-proxy redirect the packet.
func (r *report) checkServiceRoute() {
	for _, text := range r.cluster.Spec.Network.ServiceCIDR {
		cidr, err := netip.ParsePrefix(text)
		if err != nil || slices.ContainsFunc(r.host.Facts.Routes, func(route string) bool {
			p, err := netip.ParsePrefix(route)
			return route == "default" || err == nil && p.Bits() <= cidr.Bits() && p.Overlaps(cidr)
		}) {
			continue
		}
		link := facts.LinkWithAddress(r.host.Facts, internalAddress(r.host))
		r.warn(idDefaultRoute, fmt.Sprintf("add a default route and keep it across reboots (it does not have to lead anywhere): "+
			"ip route add default dev %s metric 4096", link),
			"has no default route and no route to the service network %s: "+
				"programs on the host cannot reach Services (the API server cannot call webhooks)", cidr.Masked())
	}
}

// checkOverlap reports a network at most once. An address or a route inside the network
// is an error. If the network itself is inside a wider one, that is a warning.
func (r *report) checkOverlap(name, field string, cidr netip.Prefix, addresses []op.Address, routes []string) {
	remedy := fmt.Sprintf("write another network at %s that the hosts do not use", field)
	wider := ""
	note := func(p netip.Prefix, what string) bool {
		p = p.Masked()
		switch {
		case p.Bits() == 0 || !p.Overlaps(cidr):
		case p.Bits() < cidr.Bits():
			if wider == "" {
				wider = what
			}
		default:
			r.fail(idNetworkOverlap, remedy, "the %s network %s overlaps with %s of this host", name, cidr, what)
			return true
		}
		return false
	}
	for _, a := range addresses {
		p, err := netip.ParsePrefix(a.Prefix)
		// kube-proxy and the API relay hold the addresses of Services on these interfaces.
		if err != nil || r.isOwnHost() && (a.Link == "kube-ipvs0" || a.Link == "lo") {
			continue
		}
		if cidr.Contains(p.Addr()) {
			r.fail(idNetworkOverlap, remedy, "the %s network %s contains the address %s of this host (%s)", name, cidr, p.Addr(), a.Link)
			return
		}
		if note(p, fmt.Sprintf("the network %s (%s)", p.Masked(), a.Link)) {
			return
		}
	}
	for _, text := range routes {
		p, err := netip.ParsePrefix(text)
		if err == nil && note(p, "the route to "+p.Masked().String()) {
			return
		}
	}
	if wider != "" {
		r.warn(idNetworkOverlap, remedy,
			"the %s network %s lies within %s: pods cannot reach machines outside the cluster whose addresses are in %s",
			name, cidr, wider, cidr)
	}
}

const (
	// skewLimit is the clock difference from which timestamps in etcd and the API, leases
	// and logs of different nodes begin to contradict each other.
	skewLimit = 5 * time.Second
	// managerLimit is the clock difference from which certificates and tokens that the
	// manager creates may not be valid on the hosts.
	managerLimit = time.Minute
)

// compareHosts compares the hosts with each other.
func (r *report) compareHosts(hosts []facts.Host) {
	var asked []*facts.Host
	for i := range hosts {
		f := hosts[i].Facts
		if f != nil && (!f.Ledger || f.Cluster == "" || f.Cluster == r.cluster.Name) {
			asked = append(asked, &hosts[i])
		}
	}
	for i, h := range asked {
		r.host = h
		for _, other := range asked[:i] {
			r.checkIdentity(h, other)
		}
		if r.onlyPreparesSystem() || r.onlyRenews() {
			continue
		}
		for _, other := range asked {
			r.checkTakenAddress(h, other)
		}
	}
	if !r.onlyPreparesSystem() && !r.onlyRenews() {
		r.checkVirtualAddress(asked)
	}
	r.checkClocks(asked)
}

// checkIdentity reports one machine under two names.
func (r *report) checkIdentity(h, other *facts.Host) {
	a, b := h.Facts, other.Facts
	switch {
	case a.MachineID == "" || a.MachineID != b.MachineID:
	case a.BootID == b.BootID && a.BootID != "":
		r.fail(idSameMachine, fmt.Sprintf("remove one of the two hosts from the file, or correct %s", r.fieldPath("address")),
			"is the same machine as %s (same machine id and boot)", other.Spec.Name)
	default:
		r.fail(idMachineIDDuplicate, "run on one of the two hosts: "+
			"rm -f /etc/machine-id /var/lib/dbus/machine-id && systemd-machine-id-setup && reboot",
			"has the same machine id as %s (one disk is a copy of the other); nodes are identified by the machine id", other.Spec.Name)
	}
}

// checkTakenAddress reports the address of one host on an interface of another.
func (r *report) checkTakenAddress(h, other *facts.Host) {
	ip, err := netip.ParseAddr(internalAddress(h))
	if err != nil || ip.IsLoopback() || h == other || !hasAddress(other, ip) {
		return
	}
	if same := h.Facts.MachineID == other.Facts.MachineID && h.Facts.BootID == other.Facts.BootID; same {
		return // reported by another check
	}
	r.fail(idAddressInUse, "change the address of one of the two hosts", "the address %s is also on an interface of %s", ip, other.Spec.Name)
}

// checkClocks reports hosts whose clocks differ from most others.
func (r *report) checkClocks(hosts []*facts.Host) {
	if len(hosts) == 0 {
		return
	}
	byClock := slices.Clone(hosts)
	slices.SortStableFunc(byClock, func(a, b *facts.Host) int { return cmp.Compare(a.Skew, b.Skew) })
	middle := byClock[(len(byClock)-1)/2]
	median := middle.Skew
	const remedy = "synchronize the clocks with the same source: write ntpServers under spec.system, or run timedatectl set-ntp true"
	for _, h := range hosts {
		r.host = h
		if off := (h.Skew - median).Abs(); off-h.Uncertainty-middle.Uncertainty > skewLimit {
			r.fail(idClockSkew, remedy, "the clock is %s %s the clocks of the other hosts; the limit is %s",
				off.Round(time.Second), aheadOr(h.Skew > median), skewLimit)
		}
	}
	r.host = nil
	if median.Abs()-middle.Uncertainty > managerLimit {
		r.warn(idClockManager, "set the clock of this machine, or the clocks of the hosts",
			"the clocks of the hosts are %s %s the clock of this machine; "+
				"certificates and tokens created here may not be valid on the hosts", median.Abs().Round(time.Second), aheadOr(median > 0))
	}
}

func aheadOr(ahead bool) string {
	if ahead {
		return "ahead of"
	}
	return "behind"
}
