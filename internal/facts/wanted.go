package facts

import (
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// BootstrapConf has the credentials with which a kubelet joins, until it has joined.
const BootstrapConf = "/etc/kubernetes/bootstrap-kubelet.conf"

// Paths that show the state of an etcd member on a host: its data, and the mark that the
// member was seen in its cluster. After that it must not start without its data: the
// other members rely on the writes that it has acknowledged.
const (
	EtcdData   = DirEtcd + "/member"
	EtcdJoined = "/etc/kubernetes/slipway/etcd-joined"
)

// Directories for data and programs of nodes.
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

// DirImages returns the directory for images and for data of containers.
func DirImages(c *v1alpha1.Cluster) string {
	if c.Spec.ContainerRuntime.Type == "docker" {
		return DirDocker
	}
	return DirContainerd
}

// Reservations has the addresses that CNI has assigned to pods of Slipway's network, and
// of networks with the same name that users of kubeadm set up.
const Reservations = "/var/lib/cni/networks/cbr0/[0-9a-f]*"

// PodNetworkLinks returns the names of network links that only a pod network creates.
func PodNetworkLinks() []string { return []string{"cni0", "flannel.1", "flannel-v6.1"} }

// NodeUnits returns the services of a node, whatever its roles in a cluster.
func NodeUnits(c *v1alpha1.Cluster) []string {
	units := []string{"containerd.service", "kubelet.service"}
	if c.Spec.ContainerRuntime.Type == "docker" {
		units = append(units, "docker.service", "cri-docker.service")
	}
	return units
}

// EtcdUnit is the service of an etcd member outside a pod, RegistryUnit the service of a
// registry host.
const (
	EtcdUnit     = "etcd.service"
	RegistryUnit = "slipway-registry.service"
)

// DataDirs returns the data directories of a node that Slipway removes with it.
func DataDirs(c *v1alpha1.Cluster) []string {
	dirs := []string{DirKubelet, DirContainerd}
	if c.Spec.ContainerRuntime.Type == "docker" {
		dirs = append(dirs, DirDocker, DirAdapter)
	}
	return dirs
}

// ReplacedFiles returns files and globs on a node that can belong to other software, and that
// Slipway replaces until the host leaves the cluster.
func ReplacedFiles(c *v1alpha1.Cluster) []string {
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

// A Leftover classifies a path on a host that does not belong to this cluster.
type Leftover int

// The leftovers.
const (
	LeftoverCluster   Leftover = iota // files or data of another cluster
	LeftoverRuntime                   // a running container runtime or distribution
	LeftoverNetwork                   // settings of another pod network
	LeftoverAddresses                 // addresses reserved for pods
)

// DockerUnit makes the kubelet of a node use Docker: no other Slipway node has it.
const DockerUnit = "/etc/systemd/system/cri-docker.service"

// LeftoverPaths returns paths and globs that only another cluster, container runtime or pod
// network creates.
func LeftoverPaths() map[string]Leftover {
	return map[string]Leftover{
		"/etc/kubernetes/admin.conf":   LeftoverCluster,
		"/etc/kubernetes/kubelet.conf": LeftoverCluster,
		// Files that a node needs to join, until it has joined.
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
		DockerUnit:                         LeftoverRuntime, // it would look the same as Slipway's
		"/run/crio/crio.sock":              LeftoverRuntime,
		"/run/k3s":                         LeftoverRuntime,
		"/run/k0s":                         LeftoverRuntime,
	}
}

// RequiredPrograms returns the programs that a host must already have. The kubelet, kubeadm and
// the container runtime call programs that the bundle cannot provide, and so does the unit
// of a registry.
func RequiredPrograms(c *v1alpha1.Cluster, roles []v1alpha1.Role) []string {
	list := []string{"systemctl", "mount", "umount", "losetup", "modprobe", "cp"}
	if c.Spec.ContainerRuntime.Type == "docker" { // cri-dockerd uses them to find the address of a pod
		list = append(list, "nsenter", "ip")
	}
	if c.Spec.Registry.Private != nil && slices.Contains(roles, v1alpha1.RoleRegistry) {
		list = append(list, "find", "install", "setpriv")
	}
	return list
}

// ProgramDirs returns the directories that are searched for programs.
func ProgramDirs() []string { return []string{"/usr/bin", "/usr/sbin", "/bin", "/sbin"} }

// RequiredPeers returns the addresses that a host with these roles must be able to connect to:
// "host:port".
func RequiredPeers(c *v1alpha1.Cluster, roles []v1alpha1.Role) []string {
	return append(EtcdEndpoints(c, roles), EndpointToCheck(c, roles)...)
}

// EtcdEndpoints returns the members of an external etcd that a host with these roles must
// reach: "host:port".
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

// EndpointToCheck returns the address at which a host with these roles checks whether the API
// address is in use: "host:port". A load balancer must exist there; an address for
// control planes must be free, whatever another host serves at it.
func EndpointToCheck(c *v1alpha1.Cluster, roles []v1alpha1.Role) []string {
	ep := c.Spec.ControlPlaneEndpoint
	controlPlane := slices.Contains(roles, v1alpha1.RoleControlPlane)
	at := func(port int) string { return net.JoinHostPort(ep.Address, strconv.Itoa(port)) }
	switch {
	case ep.Address == "":
	case ep.Mode == v1alpha1.EndpointExternal && !controlPlane && hostroles.RunsKubelet(roles):
		return []string{at(ep.Port)}
	case (ep.Mode == v1alpha1.EndpointKeepalived || ep.Mode == v1alpha1.EndpointKubeVIP) && controlPlane:
		return []string{at(ep.Port), at(22)}
	}
	return nil
}

// WantedFacts returns the facts to read from every host of a cluster, whatever its roles.
func WantedFacts(c *v1alpha1.Cluster) op.Facts {
	ports := map[int]bool{}
	every := []v1alpha1.Role{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker, v1alpha1.RoleEtcd, v1alpha1.RoleRegistry}
	for _, p := range hostroles.RequiredPorts(c, every) {
		ports[p.Number] = true
	}
	paths := append(slices.Collect(maps.Keys(LeftoverPaths())), ReplacedFiles(c)...)
	for _, dir := range ProgramDirs() {
		for _, program := range RequiredPrograms(c, []v1alpha1.Role{v1alpha1.RoleRegistry}) {
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
		Units:    append(NodeUnits(c), EtcdUnit, RegistryUnit),
	}
}
