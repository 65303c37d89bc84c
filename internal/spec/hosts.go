package spec

import (
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
)

// HasRole reports whether h has role.
func HasRole(h v1alpha1.Host, role v1alpha1.Role) bool { return slices.Contains(h.Roles, role) }

// HostsWithRole returns the hosts with role, in the order of the file.
func HostsWithRole(c *v1alpha1.Cluster, role v1alpha1.Role) []v1alpha1.Host {
	var out []v1alpha1.Host
	for _, h := range c.Spec.Hosts {
		if HasRole(h, role) {
			out = append(out, h)
		}
	}
	return out
}

// FindHost returns the index of the host with a name, -1 if there is none.
func FindHost(hosts []v1alpha1.Host, name string) int {
	return slices.IndexFunc(hosts, func(h v1alpha1.Host) bool { return h.Name == name })
}

// TaintsControlPlane reports whether h, a control plane, does not run ordinary pods: it
// is not also a worker, and the cluster has workers.
func TaintsControlPlane(c *v1alpha1.Cluster, h v1alpha1.Host) bool {
	return HasRole(h, v1alpha1.RoleControlPlane) && !HasRole(h, v1alpha1.RoleWorker) &&
		len(HostsWithRole(c, v1alpha1.RoleWorker)) > 0
}

// HostCalled returns the host with a name or an address, if there is one.
func HostCalled(c *v1alpha1.Cluster, name string) (v1alpha1.Host, bool) {
	for _, h := range c.Spec.Hosts {
		for _, own := range []string{h.Name, h.Address, h.InternalAddress} {
			if own != "" && addressMeaning(own) == addressMeaning(name) {
				return h, true
			}
		}
	}
	return v1alpha1.Host{}, false
}

// ToleratesSwap reports whether kubelets start on hosts with swap.
func ToleratesSwap(c *v1alpha1.Cluster) bool {
	return c.Spec.Kubernetes.Kubelet.Config["failSwapOn"] == false
}
