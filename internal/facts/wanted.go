package facts

import (
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/op"
)

// A Port is one that a node's components listen on.
type Port struct {
	Number   int
	Protocol string // "tcp" or "udp"
	// Component is who listens there: "kubelet".
	Component string
	// Open says that other nodes come in by it, through a firewall.
	Open bool
}

// Ports are those of a host in its roles in a cluster; see the Kubernetes
// documentation, "Ports and Protocols", and flannel's, "Backends".
func Ports(c *v1alpha1.Cluster, roles []v1alpha1.Role) []Port {
	var out []Port
	if RunsKubelet(roles) {
		out = append(out, Port{10250, "tcp", "kubelet", true}, Port{10248, "tcp", "kubelet", false})
		if c.Spec.Kubernetes.ProxyMode != "none" {
			out = append(out, Port{10249, "tcp", "kube-proxy", false}, Port{10256, "tcp", "kube-proxy", true})
		}
		if FlannelVXLAN(c) {
			out = append(out, Port{8472, "udp", "flannel", true})
		}
	}
	port := c.Spec.ControlPlaneEndpoint.Port
	if port == 0 {
		port = 6443
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

// Registry is who listens on the port of the host that is one.
const Registry = "registry"

// RunsKubelet says whether a host in these roles is a node.
func RunsKubelet(roles []v1alpha1.Role) bool {
	return slices.Contains(roles, v1alpha1.RoleControlPlane) || slices.Contains(roles, v1alpha1.RoleWorker)
}

// BootstrapConf is what a kubelet asks with to be let in, as long as it has to.
const BootstrapConf = "/etc/kubernetes/bootstrap-kubelet.conf"

// RunsEtcd says whether a host in these roles has a member of etcd.
func RunsEtcd(c *v1alpha1.Cluster, roles []v1alpha1.Role) bool {
	if slices.Contains(roles, v1alpha1.RoleEtcd) {
		return true
	}
	stacked := c.Spec.Etcd.Type == "" || c.Spec.Etcd.Type == "stacked"
	return stacked && slices.Contains(roles, v1alpha1.RoleControlPlane)
}

// FlannelVXLAN says whether the pod network is flannel's over VXLAN.
func FlannelVXLAN(c *v1alpha1.Cluster) bool {
	backend := c.Spec.Network.Flannel.Backend
	return Flannel(c) && (backend == "" || backend == "vxlan")
}

// Flannel reports whether the pod network is flannel's.
func Flannel(c *v1alpha1.Cluster) bool {
	return c.Spec.Network.Plugin == "" || c.Spec.Network.Plugin == "flannel"
}

// What tells how far a host is that has a member of etcd: its member's data, and
// that the member was seen in its cluster. From then on it must not start
// without its data: the others count on what it has acknowledged.
const (
	EtcdData   = DirEtcd + "/member"
	EtcdJoined = "/etc/kubernetes/slipway/etcd-joined"
)

// Where etcd listens.
const (
	EtcdClientPort  = 2379
	EtcdPeerPort    = 2380
	EtcdMetricsPort = 2381 // where a member says how it is, on its host alone
)

// Where nodes keep their data and their programs.
const (
	DirContainerd = "/var/lib/containerd"
	DirDocker     = "/var/lib/docker"
	DirAdapter    = "/var/lib/cri-dockerd"
	DirKubelet    = "/var/lib/kubelet"
	DirEtcd       = "/var/lib/etcd"
	DirBlobs      = "/var/lib/slipway"
	DirPrograms   = "/usr/local/bin"
	DirPlugins    = "/opt/cni/bin"
	DirRoot       = "/"
)

// DirImages is where the nodes of a cluster keep images and what containers write.
func DirImages(c *v1alpha1.Cluster) string {
	if c.Spec.ContainerRuntime.Type == "docker" {
		return DirDocker
	}
	return DirContainerd
}

// Reservations are the addresses that CNI has given to pods of the network that
// Slipway sets up, and that kubeadm's users set up by the same name.
const Reservations = "/var/lib/cni/networks/cbr0/[0-9a-f]*"

// Links are network links that only a pod network makes.
func Links() []string { return []string{"cni0", "flannel.1", "flannel-v6.1"} }

// Units are the services of a node, whatever its roles in a cluster.
func Units(c *v1alpha1.Cluster) []string {
	units := []string{"containerd.service", "kubelet.service"}
	if c.Spec.ContainerRuntime.Type == "docker" {
		units = append(units, "docker.service", "cri-docker.service")
	}
	return units
}

// EtcdUnit is the service of an etcd member outside a pod, RegistryUnit that of a
// host that is a registry.
const (
	EtcdUnit     = "etcd.service"
	RegistryUnit = "slipway-registry.service"
)

// DataDirs are where a node of a cluster keeps data that Slipway removes with it.
func DataDirs(c *v1alpha1.Cluster) []string {
	dirs := []string{DirKubelet, DirContainerd}
	if c.Spec.ContainerRuntime.Type == "docker" {
		dirs = append(dirs, DirDocker, DirAdapter)
	}
	return dirs
}

// Replaced are files and globs of a node that may be of others, and that Slipway's
// own take the place of until the host leaves the cluster.
func Replaced(c *v1alpha1.Cluster) []string {
	paths := []string{"/etc/containerd/config.toml", "/etc/crictl.yaml", DirPlugins + "/*"}
	programs := []string{"containerd", "containerd-shim-runc-v2", "crictl", "ctr", "kubeadm", "kubectl", "kubelet", "runc"}
	if c.Spec.ContainerRuntime.Type == "docker" {
		paths = append(paths, "/etc/docker/daemon.json")
		programs = append(programs, "cri-dockerd", "docker", "dockerd")
	}
	for _, program := range programs {
		paths = append(paths, DirPrograms+"/"+program)
	}
	return paths
}

// A Leftover is what a path on a host means that is not of this cluster.
type Leftover int

// The leftovers.
const (
	LeftoverCluster   Leftover = iota // files or data of another cluster
	LeftoverRuntime                   // a container runtime or distribution that runs
	LeftoverNetwork                   // settings of another pod network
	LeftoverAddresses                 // addresses reserved for pods
)

// DockerUnit has the kubelet of a node use Docker: it is on no other node of ours.
const DockerUnit = "/etc/systemd/system/cri-docker.service"

// Leftovers are paths and globs that only another cluster, container runtime
// or pod network makes.
func Leftovers() map[string]Leftover {
	return map[string]Leftover{
		"/etc/kubernetes/admin.conf":   LeftoverCluster,
		"/etc/kubernetes/kubelet.conf": LeftoverCluster,
		// What a node joins with, until it has joined.
		BootstrapConf:                      LeftoverCluster,
		"/etc/kubernetes/manifests/*.yaml": LeftoverCluster,
		"/etc/kubernetes/manifests/*.json": LeftoverCluster,
		"/etc/kubernetes/pki/*.crt":        LeftoverCluster,
		EtcdData:                           LeftoverCluster,
		"/var/lib/kubelet/config.yaml":     LeftoverCluster,
		"/var/lib/kubelet/pki/*.pem":       LeftoverCluster,
		"/etc/cni/net.d/*.conflist":        LeftoverNetwork,
		"/etc/cni/net.d/*.conf":            LeftoverNetwork,
		Reservations:                       LeftoverAddresses,
		"/run/containerd/containerd.sock":  LeftoverRuntime,
		"/run/docker.sock":                 LeftoverRuntime,
		DockerUnit:                         LeftoverRuntime, // nobody could tell it from one of ours
		"/run/crio/crio.sock":              LeftoverRuntime,
		"/run/k3s":                         LeftoverRuntime,
		"/run/k0s":                         LeftoverRuntime,
	}
}

// Programs are what a host itself must have: those the kubelet, kubeadm and
// the container runtime call and the bundle cannot bring, and those that the unit of a
// registry calls.
func Programs(c *v1alpha1.Cluster, roles []v1alpha1.Role) []string {
	list := []string{"systemctl", "mount", "umount", "losetup", "modprobe", "cp"}
	if c.Spec.ContainerRuntime.Type == "docker" { // with them cri-dockerd asks for the address of a pod
		list = append(list, "nsenter", "ip")
	}
	if c.Spec.Registry.Private != nil && slices.Contains(roles, v1alpha1.RoleRegistry) {
		list = append(list, "find", "install", "setpriv")
	}
	return list
}

// ProgramDirs are where programs are looked for.
func ProgramDirs() []string { return []string{"/usr/bin", "/usr/sbin", "/bin", "/sbin"} }

// Reach is what a host in these roles is asked to connect to: "host:port".
func Reach(c *v1alpha1.Cluster, roles []v1alpha1.Role) []string {
	return append(EtcdEndpoints(c, roles), Endpoint(c, roles)...)
}

// EtcdEndpoints are the members of an etcd of others that a host in these roles
// must reach: "host:port".
func EtcdEndpoints(c *v1alpha1.Cluster, roles []v1alpha1.Role) []string {
	var out []string
	if x := c.Spec.Etcd.External; x != nil && slices.Contains(roles, v1alpha1.RoleControlPlane) {
		for _, endpoint := range x.Endpoints {
			if u, err := url.Parse(endpoint); err == nil {
				out = append(out, u.Host)
			}
		}
	}
	return out
}

// Endpoint is where a host in these roles finds out whether the API's address
// is somebody's: "host:port". A load balancer must be there; an address that
// control planes are to hold must be nobody's, whatever that one serves.
func Endpoint(c *v1alpha1.Cluster, roles []v1alpha1.Role) []string {
	ep := c.Spec.ControlPlaneEndpoint
	controlPlane := slices.Contains(roles, v1alpha1.RoleControlPlane)
	at := func(port int) string { return net.JoinHostPort(ep.Address, strconv.Itoa(port)) }
	switch {
	case ep.Address == "":
	case ep.Mode == v1alpha1.EndpointExternal && !controlPlane && RunsKubelet(roles):
		return []string{at(ep.Port)}
	case (ep.Mode == v1alpha1.EndpointKeepalived || ep.Mode == v1alpha1.EndpointKubeVIP) && controlPlane:
		return []string{at(ep.Port), at(22)}
	}
	return nil
}

// Wanted is what to ask of every host of a cluster, whatever its roles.
func Wanted(c *v1alpha1.Cluster) op.Facts {
	ports := map[int]bool{}
	for _, p := range Ports(c, []v1alpha1.Role{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker, v1alpha1.RoleEtcd, v1alpha1.RoleRegistry}) {
		ports[p.Number] = true
	}
	paths := append(slices.Collect(maps.Keys(Leftovers())), Replaced(c)...)
	for _, dir := range ProgramDirs() {
		for _, program := range Programs(c, []v1alpha1.Role{v1alpha1.RoleRegistry}) {
			paths = append(paths, dir+"/"+program)
		}
	}
	slices.Sort(paths)
	names := []string{c.Spec.ControlPlaneEndpoint.Domain}
	for _, h := range c.Spec.Hosts {
		names = append(names, h.Name)
	}
	dirs := []string{DirRoot, DirContainerd, DirKubelet, DirEtcd, DirBlobs, DirPrograms, DirPlugins}
	if images := DirImages(c); images != DirContainerd {
		dirs = append(dirs, images)
	}
	if r := c.Spec.Registry.Private; r != nil {
		dirs = append(dirs, r.Directory)
	}
	return op.Facts{
		Names: names,
		Ports: slices.Sorted(maps.Keys(ports)),
		Paths: paths,
		Dirs:  dirs,

		Contents: append(DataDirs(c), DirEtcd),
		Units:    append(Units(c), EtcdUnit, RegistryUnit),
	}
}
