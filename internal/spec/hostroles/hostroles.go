// Package hostroles knows which programs run on a host with some roles, and on which ports they listen.
package hostroles

import (
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
)

// Ports of components.
const (
	APIServerPort   = 6443 // unless the cluster file has another one
	KubeletPort     = 10250
	EtcdClientPort  = 2379
	EtcdPeerPort    = 2380
	EtcdMetricsPort = 2381 // the port for the health of a member, only on its host
)

// A Port is a port on which a component of a node listens.
type Port struct {
	Number   int
	Protocol string // "tcp" or "udp"
	// Component is the listening component: "kubelet".
	Component string
	// Open reports whether other nodes connect to it, through a firewall.
	Open bool
}

// RequiredPorts returns the ports of a host with these roles in a cluster; see the Kubernetes
// documentation, "Ports and Protocols", and the flannel documentation, "Backends".
func RequiredPorts(c *v1alpha1.Cluster, roles []v1alpha1.Role) []Port {
	var out []Port
	if RunsKubelet(roles) {
		out = append(out, Port{KubeletPort, "tcp", "kubelet", true}, Port{10248, "tcp", "kubelet", false})
		if c.Spec.Kubernetes.ProxyMode != "none" {
			out = append(out, Port{10249, "tcp", "kube-proxy", false}, Port{10256, "tcp", "kube-proxy", true})
		}
		if UsesFlannelVXLAN(c) {
			out = append(out, Port{8472, "udp", "flannel", true})
		}
	}
	port := c.Spec.ControlPlaneEndpoint.Port
	if port == 0 {
		port = APIServerPort
	}
	if slices.Contains(roles, v1alpha1.RoleControlPlane) {
		out = append(out,
			Port{port, "tcp", "kube-apiserver", true},
			Port{10257, "tcp", "kube-controller-manager", false},
			Port{10259, "tcp", "kube-scheduler", false},
		)
	} else if m := c.Spec.ControlPlaneEndpoint.Mode; m == v1alpha1.EndpointHAProxy || m == v1alpha1.EndpointUpdater {
		out = append(out, Port{port, "tcp", "haproxy", false})
	}
	if RunsEtcd(c, roles) {
		out = append(out,
			Port{EtcdClientPort, "tcp", "etcd", true},
			Port{EtcdPeerPort, "tcp", "etcd", true},
			Port{EtcdMetricsPort, "tcp", "etcd", false},
		)
	}
	if r := c.Spec.Registry.Private; r != nil && slices.Contains(roles, v1alpha1.RoleRegistry) {
		out = append(out, Port{r.Port, "tcp", Registry, true})
	}
	return out
}

// Registry is the component that listens on the port of the registry host.
const Registry = "registry"

// RunsKubelet reports whether a host with these roles is a node.
func RunsKubelet(roles []v1alpha1.Role) bool {
	return slices.Contains(roles, v1alpha1.RoleControlPlane) || slices.Contains(roles, v1alpha1.RoleWorker)
}

// RunsEtcd reports whether a host with these roles has an etcd member.
func RunsEtcd(c *v1alpha1.Cluster, roles []v1alpha1.Role) bool {
	if slices.Contains(roles, v1alpha1.RoleEtcd) {
		return true
	}
	stacked := c.Spec.Etcd.Type == "" || c.Spec.Etcd.Type == "stacked"
	return stacked && slices.Contains(roles, v1alpha1.RoleControlPlane)
}

// UsesFlannelVXLAN reports whether the pod network is flannel with VXLAN.
func UsesFlannelVXLAN(c *v1alpha1.Cluster) bool {
	backend := c.Spec.Network.Flannel.Backend
	return UsesFlannel(c) && (backend == "" || backend == "vxlan")
}

// UsesFlannel reports whether the pod network is flannel.
func UsesFlannel(c *v1alpha1.Cluster) bool {
	return c.Spec.Network.Plugin == "" || c.Spec.Network.Plugin == "flannel"
}
