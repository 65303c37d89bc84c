package facts

import (
	"maps"
	"slices"

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
	out := []Port{
		{10250, "tcp", "kubelet", true},
		{10248, "tcp", "kubelet", false},
	}
	if c.Spec.Kubernetes.ProxyMode != "none" {
		out = append(out, Port{10249, "tcp", "kube-proxy", false}, Port{10256, "tcp", "kube-proxy", true})
	}
	if FlannelVXLAN(c) {
		out = append(out, Port{8472, "udp", "flannel", true})
	}
	if slices.Contains(roles, v1alpha1.RoleControlPlane) {
		port := c.Spec.ControlPlaneEndpoint.Port
		if port == 0 {
			port = 6443
		}
		out = append(out,
			Port{port, "tcp", "kube-apiserver", true},
			Port{10257, "tcp", "kube-controller-manager", false},
			Port{10259, "tcp", "kube-scheduler", false},
		)
	}
	if RunsEtcd(c, roles) {
		out = append(out,
			Port{2379, "tcp", "etcd", true},
			Port{2380, "tcp", "etcd", true},
			Port{2381, "tcp", "etcd", false},
		)
	}
	return out
}

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
	n := c.Spec.Network
	return (n.Plugin == "" || n.Plugin == "flannel") && (n.Flannel.Backend == "" || n.Flannel.Backend == "vxlan")
}

// Where nodes keep their data and their programs.
const (
	DirContainerd = "/var/lib/containerd"
	DirKubelet    = "/var/lib/kubelet"
	DirEtcd       = "/var/lib/etcd"
	DirBlobs      = "/var/lib/slipway"
	DirPrograms   = "/usr/local/bin"
	DirPlugins    = "/opt/cni/bin"
	DirRoot       = "/"
)

// Leftovers are paths that only another cluster or container runtime makes,
// and what each of them means.
func Leftovers() map[string]string {
	return map[string]string{
		"/etc/kubernetes/admin.conf":       "the files of another cluster",
		"/etc/kubernetes/kubelet.conf":     "the files of another cluster",
		"/etc/kubernetes/manifests/*.yaml": "the control plane of another cluster",
		"/etc/kubernetes/manifests/*.json": "the control plane of another cluster",
		"/etc/kubernetes/pki/*.crt":        "the certificates of another cluster",
		"/var/lib/etcd/member":             "the data of another etcd",
		"/var/lib/kubelet/pki/*.pem":       "the certificates of another cluster",
		"/var/lib/kubelet/config.yaml":     "the kubelet of another cluster",
		"/etc/cni/net.d/*.conflist":        "another pod network",
		"/etc/cni/net.d/*.conf":            "another pod network",
		"/run/containerd/containerd.sock":  "a containerd that is running",
		"/run/docker.sock":                 "a Docker that is running",
		"/run/crio/crio.sock":              "a CRI-O that is running",
		"/run/k3s":                         "a k3s that is running",
		"/run/k0s":                         "a k0s that is running",
	}
}

// Programs are what a host itself must have: those the kubelet, kubeadm and
// containerd call and the bundle cannot bring.
func Programs() []string {
	return []string{"systemctl", "mount", "umount", "losetup", "modprobe", "cp"}
}

// ProgramDirs are where programs are looked for.
func ProgramDirs() []string { return []string{"/usr/bin", "/usr/sbin", "/bin", "/sbin"} }

// Wanted is what to ask of every host of a cluster, whatever its roles.
func Wanted(c *v1alpha1.Cluster) op.Facts {
	ports := map[int]bool{}
	for _, p := range Ports(c, []v1alpha1.Role{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker, v1alpha1.RoleEtcd}) {
		ports[p.Number] = true
	}
	paths := slices.Collect(maps.Keys(Leftovers()))
	for _, dir := range ProgramDirs() {
		for _, program := range Programs() {
			paths = append(paths, dir+"/"+program)
		}
	}
	slices.Sort(paths)
	return op.Facts{
		Ports: slices.Sorted(maps.Keys(ports)),
		Paths: paths,
		Dirs:  []string{DirRoot, DirContainerd, DirKubelet, DirEtcd, DirBlobs, DirPrograms, DirPlugins},
	}
}
