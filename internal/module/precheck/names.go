package precheck

import (
	"net/netip"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/spec"
)

// names judges what the host's own hosts file makes of the cluster's names:
// the first line of a name counts, and Slipway's come last.
func (r *report) names() {
	const remedy = "take that line out of /etc/hosts on the host"
	domain := r.cluster.Spec.ControlPlaneEndpoint.Domain
	for _, n := range r.host.Facts.Named {
		got, err := netip.ParseAddr(n.Address)
		if err != nil {
			continue
		}
		if n.Name == domain {
			if want, ok := r.endpoint(); ok && got.Unmap() != want && !(r.controlPlane() && got.IsLoopback()) {
				r.fail(idHostsFile, remedy, "its /etc/hosts gives %s the address %s; to this host the API is at %s", n.Name, got, want)
			}
			continue
		}
		i := slices.IndexFunc(r.cluster.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == n.Name })
		if i < 0 {
			continue
		}
		// Its own name may be any address of its own: Debian writes 127.0.1.1.
		own := n.Name == r.host.Spec.Name && (got.IsLoopback() || owns(r.host, got))
		want, err := netip.ParseAddr(internal(&facts.Host{Spec: r.cluster.Spec.Hosts[i]}))
		if err == nil && !own && got.Unmap() != want.Unmap() {
			r.warn(idHostsFile, remedy, "its /etc/hosts gives %s the address %s; that host is at %s", n.Name, got, want)
		}
	}
}

// endpoint is what the host is told that the API's name stands for, if it is.
func (r *report) endpoint() (netip.Addr, bool) {
	ip, err := netip.ParseAddr(spec.EndpointAddress(r.cluster, r.host.Spec))
	return ip.Unmap(), err == nil
}

// resolver judges the DNS servers that pods are handed. On a node that runs
// what is missing was missed by nobody so far.
func (r *report) resolver() {
	res := r.host.Facts.Resolver
	if res == nil || r.cluster.Spec.Kubernetes.Kubelet.Config["resolvConf"] != nil {
		return
	}
	severity := diag.Error
	if r.ours() {
		severity = diag.Warning
	}
	const remedy = "write upstream: [ADDRESS] under spec.dns, or a server into that file; where there is none, any address will do"
	switch {
	case res.Missing:
		r.find(severity, idResolver, "make the file, without a line if there is no DNS server, and write upstream under spec.dns",
			"has no %s, without which the kubelet starts no pod", res.Path)
	case len(r.cluster.Spec.DNS.Upstream) > 0:
	case len(res.Servers) == 0:
		r.find(severity, idResolver, remedy, "names no DNS server in %s; the cluster's own does not start with none to ask", res.Path)
	case slices.ContainsFunc(res.Servers, loopback):
		r.find(severity, idResolver, remedy, "names %s as DNS server in %s; in a pod that is the pod itself, and the cluster's DNS would ask itself", list(res.Servers), res.Path)
	}
}

func loopback(server string) bool {
	ip, err := netip.ParseAddr(server)
	return err == nil && ip.IsLoopback()
}
