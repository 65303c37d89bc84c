package spec

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// A changeValidator checks a new file against the existing cluster.
type changeValidator struct{ *validator }

// FindForbiddenChanges finds the differences between an existing cluster and its new file that
// cannot be applied: some would need a new cluster, and others are not supported by any
// operation yet. Both have their defaults; paths are paths of the new one. halfway lists
// the wanted states of incomplete changes, which some hosts may have, after the state
// before these changes. Without any, only old counts.
func FindForbiddenChanges(old, new *v1alpha1.Cluster, halfway ...*v1alpha1.Cluster) diag.List {
	v := changeValidator{&validator{c: new}}
	o, n := old.Spec, new.Spec
	v.checkFixed("metadata.name", old.Name, new.Name)
	v.checkFixedList("spec.network.podCIDR", o.Network.PodCIDR, n.Network.PodCIDR)
	v.checkFixedList("spec.network.serviceCIDR", o.Network.ServiceCIDR, n.Network.ServiceCIDR)
	v.checkFixed("spec.network.plugin", o.Network.Plugin, n.Network.Plugin)
	v.checkFixed("spec.kubernetes.dnsDomain", o.Kubernetes.DNSDomain, n.Kubernetes.DNSDomain)
	v.checkFixed("spec.etcd.type", o.Etcd.Type, n.Etcd.Type)
	const prefix = "etcd-prefix" // another one hides all objects
	v.checkFixed(yamlfile.KeyPath(pathArguments, prefix), o.Kubernetes.APIServer.ExtraArgs[prefix], n.Kubernetes.APIServer.ExtraArgs[prefix])
	v.checkSameEtcd(o.Etcd.External, n.Etcd.External)
	v.checkKeepsMembers(old)
	v.checkFixed("spec.controlPlaneEndpoint.domain", o.ControlPlaneEndpoint.Domain, n.ControlPlaneEndpoint.Domain)
	v.checkFixed("spec.controlPlaneEndpoint.port", strconv.Itoa(o.ControlPlaneEndpoint.Port), strconv.Itoa(n.ControlPlaneEndpoint.Port))
	v.checkEndpointChanges(o.ControlPlaneEndpoint, halfway)
	v.checkBalancerLeaves(old)
	if o.Kubernetes.Version != n.Kubernetes.Version {
		v.refuse(idNotSupportedYet, "spec.kubernetes.version",
			"the cluster runs Kubernetes "+o.Kubernetes.Version+", and apply cannot change that to "+n.Kubernetes.Version,
			"to upgrade, run 'slipway upgrade "+old.Name+" --to "+n.Kubernetes.Version+"'; otherwise write "+o.Kubernetes.Version)
	}
	v.checkProxyChanges(o.Kubernetes.ProxyMode, halfway)
	v.checkSameHosts(o.Hosts, n.Hosts)
	v.checkSameRegistry(old)
	v.checkSameCgroups(o.ContainerRuntime)
	return v.found
}

// checkEndpointChanges rejects endpoints that cannot follow one of the endpoints that hosts
// may have. A change back to the first is always possible, because nodes have used it.
func (v changeValidator) checkEndpointChanges(recorded v1alpha1.ControlPlaneEndpoint, halfway []*v1alpha1.Cluster) {
	n := v.c.Spec.ControlPlaneEndpoint
	var ways []v1alpha1.ControlPlaneEndpoint
	for _, c := range halfway {
		ways = append(ways, c.Spec.ControlPlaneEndpoint)
	}
	if len(ways) > 0 && reflect.DeepEqual(ways[0], n) {
		return
	}
	before := len(v.found)
	if v.checkEndpointChange(recorded, n); len(v.found) > before {
		return
	}
	for _, way := range ways {
		if v.checkEndpointChange(way, n); len(v.found) > before {
			for i := range v.found[before:] {
				d := &v.found[before+i]
				d.Message += "; the change from " + describeDifference(way, recorded) + " is not complete"
				// The latest operation may be a different one: a resume does not complete
				// this change then.
				d.Hint = "complete the first change: write " + formatEndpoint(recorded) + ", and apply it"
			}
			return
		}
	}
}

// describeDifference describes the difference between two endpoints.
func describeDifference(a, b v1alpha1.ControlPlaneEndpoint) string {
	if a.Mode != b.Mode {
		return fmt.Sprintf("mode %s to %s", a.Mode, b.Mode)
	}
	return "address " + cmp.Or(a.Address, "none") + " to " + cmp.Or(b.Address, "none")
}

// formatEndpoint returns an endpoint in the form of a cluster file.
func formatEndpoint(ep v1alpha1.ControlPlaneEndpoint) string {
	if ep.Address == "" {
		return fmt.Sprintf("mode: %s without an address", ep.Mode)
	}
	return fmt.Sprintf("mode: %s with address: %s", ep.Mode, ep.Address)
}

// checkEndpointChange rejects endpoint changes that cannot be tested before the old endpoint
// is removed.
func (v changeValidator) checkEndpointChange(o, n v1alpha1.ControlPlaneEndpoint) {
	const path = "spec.controlPlaneEndpoint"
	const between = ", or apply mode: haproxy without an address before this change"
	switch {
	case HoldsAddress(o.Mode) && HoldsAddress(n.Mode) && o.Mode != n.Mode:
		// The old endpoint exists until no node uses it, and neither endpoint knows of
		// the other.
		v.refuse(idEndpointChange, path+".mode",
			fmt.Sprintf("mode %s cannot change to %s in place: during the change, control planes in the old and the new mode "+
				"would hold an address at the same time", o.Mode, n.Mode),
			fmt.Sprintf("write mode: %s%s", o.Mode, between))
	case BringsAddress(o.Mode) && o.Mode != n.Mode && o.Address != "" && CanonicalIP(o.Address) == CanonicalIP(n.Address):
		// Nodes would use the new endpoint without a test, because it looks like the old
		// one.
		v.refuse(idEndpointChange, path+".address",
			fmt.Sprintf("the address %s exists only through mode %s: when this mode ends, the address is unreachable", o.Address, o.Mode),
			"write a different address"+between)
	case BringsAddress(o.Mode) && n.Mode == o.Mode && o.Address != n.Address:
		// A node or a control plane has only one address of these kinds at a time.
		v.refuse(idEndpointChange, path+".address",
			"the address "+o.Address+" cannot change to "+n.Address+" in place: nodes still use the old address while it is removed",
			"write "+o.Address+between)
	case n.Mode == v1alpha1.EndpointKeepalived && n.Mode == o.Mode && o.RouterID != n.RouterID:
		was := strconv.Itoa(o.RouterID)
		v.refuse(idEndpointChange, path+".routerID",
			"the router ID "+was+" cannot change in place: two groups of control planes would hold the address", "write "+was+between)
	}
	if n.Mode == v1alpha1.EndpointExternal && n.Address == "" && (o.Mode != n.Mode || o.Address != "") {
		v.refuse(idEndpointChange, path+".address",
			"nodes cannot test an endpoint that only DNS resolves: their hosts files still have the old address",
			"write the address of the load balancer")
	}
}

// checkBalancerLeaves rejects the removal of a control plane whose own address workers use as
// the address of the load balancer.
func (v changeValidator) checkBalancerLeaves(old *v1alpha1.Cluster) {
	ep := v.c.Spec.ControlPlaneEndpoint
	at := func(h v1alpha1.Host) bool {
		return slices.Contains([]string{CanonicalIP(h.Address), CanonicalIP(h.InternalAddress)}, CanonicalIP(ep.Address))
	}
	if ep.Mode != v1alpha1.EndpointExternal || ep.Address == "" || slices.ContainsFunc(v.c.Spec.Hosts, at) {
		return
	}
	for _, h := range HostsWithRole(old, v1alpha1.RoleControlPlane) {
		if at(h) {
			v.refuse(idEndpointChange, "spec.controlPlaneEndpoint.address",
				fmt.Sprintf("workers use %s as the API address, which is an address of %s itself: they would lose the API with that node",
					ep.Address, h.Name),
				"write mode: haproxy without an address, or the address of a load balancer, and apply it, together with this change or before it")
		}
	}
}

// checkProxyChanges rejects a mode of kube-proxy that cannot follow the saved one, or one that
// nodes may still have.
func (v changeValidator) checkProxyChanges(recorded string, halfway []*v1alpha1.Cluster) {
	before := len(v.found)
	v.checkProxyChange(recorded, v.c.Spec.Kubernetes.ProxyMode)
	for _, c := range halfway {
		if len(v.found) > before {
			return
		}
		v.checkProxyChange(c.Spec.Kubernetes.ProxyMode, v.c.Spec.Kubernetes.ProxyMode)
	}
}

// checkProxyChange rejects changes of the kube-proxy mode that would leave rules of the old
// mode on nodes. kube-proxy removes these rules at its start, except iptables rules,
// which ipvs uses as well (platformCleanup in its server_linux.go), and not when it is
// removed. So adding kube-proxy to a cluster without it could not be rolled back.
func (v changeValidator) checkProxyChange(old, new string) {
	const path = "spec.kubernetes.proxyMode"
	switch {
	case old == new || old == "":
	case new == proxyNone:
		v.refuse(idNotSupportedYet, path, "kube-proxy cannot be removed from an existing cluster: its rules would remain on nodes", "write "+old)
	case old == proxyNone:
		v.refuse(idNotSupportedYet, path,
			"kube-proxy cannot be added to an existing cluster without it: the change could not be rolled back", "write "+old)
	case old != proxyNFTables && new != proxyNFTables:
		v.refuse(idProxyChange, path, "mode "+old+" cannot change to "+new+" in place: rules of the old mode would remain on nodes",
			"write "+old+", or apply nftables first, then "+new)
	}
}

func (v changeValidator) checkFixed(path, old, new string) {
	if old != new {
		v.refuse(idImmutableField, path,
			"this field cannot change while the cluster exists: it is "+strconv.Quote(old)+", but the file has "+strconv.Quote(new),
			"write "+strconv.Quote(old)+", or create a new cluster")
	}
}

func (v changeValidator) checkFixedList(path string, old, new []string) {
	if !slices.Equal(old, new) {
		v.checkFixed(path, strings.Join(old, ","), strings.Join(new, ","))
	}
}

// checkSameHosts matches hosts by name. Hosts can be added, removed and replaced by another
// machine; only the roles of a host cannot change.
func (v changeValidator) checkSameHosts(old, new []v1alpha1.Host) {
	before := map[string]v1alpha1.Host{}
	for _, h := range old {
		before[h.Name] = h
	}
	for i, h := range new {
		if was, ok := before[h.Name]; ok && !sameRoles(was, h) {
			v.refuse(idRolesFixed, yamlfile.IndexPath("spec.hosts", i)+".roles", "the roles of "+h.Name+" cannot change while it is in the cluster",
				"write the current roles, or remove the node and add it again: slipway delete node "+h.Name)
		}
	}
}

func sameRoles(a, b v1alpha1.Host) bool {
	has := func(h v1alpha1.Host) [3]bool {
		return [3]bool{HasRole(h, v1alpha1.RoleControlPlane), HasRole(h, v1alpha1.RoleWorker), HasRole(h, v1alpha1.RoleEtcd)}
	}
	return has(a) == has(b)
}
