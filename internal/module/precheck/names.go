package precheck

import (
	"net/netip"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/spec"
)

// checkNames checks which addresses the hosts file of the host has for names of the
// cluster: the first line of a name counts, and the lines of Slipway come last.
func (r *report) checkNames() {
	const remedy = "remove that line from /etc/hosts on the host"
	domain := r.cluster.Spec.ControlPlaneEndpoint.Domain
	for _, n := range r.host.Facts.Named {
		got, err := netip.ParseAddr(n.Address)
		if err != nil {
			continue
		}
		if n.Name == domain {
			if want, ok := r.endpointAddress(); ok && got.Unmap() != want && !(r.isControlPlane() && got.IsLoopback()) {
				r.fail(idHostsFile, remedy, "/etc/hosts maps %s to %s; for this host the API is at %s", n.Name, got, want)
			}
			continue
		}
		i := slices.IndexFunc(r.cluster.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == n.Name })
		if i < 0 {
			continue
		}
		// The name of the host itself may have any of its own addresses: Debian writes
		// 127.0.1.1.
		own := n.Name == r.host.Spec.Name && (got.IsLoopback() || hasAddress(r.host, got))
		want, err := netip.ParseAddr(internalAddress(&facts.Host{Spec: r.cluster.Spec.Hosts[i]}))
		if err == nil && !own && got.Unmap() != want.Unmap() {
			r.warn(idHostsFile, remedy, "/etc/hosts maps %s to %s; that host is at %s", n.Name, got, want)
		}
	}
}

// endpointAddress returns the address that Slipway writes into the hosts file for the
// API name; "" if it writes none.
func (r *report) endpointAddress() (netip.Addr, bool) {
	ip, err := netip.ParseAddr(spec.EndpointAddress(r.cluster, r.host.Spec))
	return ip.Unmap(), err == nil
}

// checkResolver checks the DNS servers that pods receive. On a running node a problem
// is only a warning, because the node works without them.
func (r *report) checkResolver() {
	res := r.host.Facts.Resolver
	if res == nil || r.cluster.Spec.Kubernetes.Kubelet.Config["resolvConf"] != nil {
		return
	}
	severity := diag.Error
	if r.isOwnHost() {
		severity = diag.Warning
	}
	const remedy = "write upstream: [ADDRESS] under spec.dns, or add a server to that file; without a DNS server, write any address"
	switch {
	case res.Missing:
		r.addFinding(severity, idResolver, "create the file (empty if there is no DNS server), and write upstream under spec.dns",
			"has no %s; without this file the kubelet cannot start pods", res.Path)
	case len(r.cluster.Spec.DNS.Upstream) > 0:
	case len(res.Servers) == 0:
		r.addFinding(severity, idResolver, remedy, "has no DNS server in %s; CoreDNS does not start without an upstream server", res.Path)
	case slices.ContainsFunc(res.Servers, isLoopback):
		r.addFinding(severity, idResolver, remedy,
			"has DNS server %s in %s; in a pod this is the pod itself, so CoreDNS would query itself", joinItems(res.Servers), res.Path)
	}
}

func isLoopback(server string) bool {
	ip, err := netip.ParseAddr(server)
	return err == nil && ip.IsLoopback()
}
