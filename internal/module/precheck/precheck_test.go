package precheck

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/testutil/golden"
)

// sound returns a cluster of one control plane and one worker without findings.
func sound() (*v1alpha1.Cluster, []facts.Host) {
	c := &v1alpha1.Cluster{}
	c.Name = "prod"
	c.Spec.Kubernetes = v1alpha1.Kubernetes{Version: "v1.37.1", ProxyMode: "nftables"}
	c.Spec.ControlPlaneEndpoint.Port = 6443
	c.Spec.Network = v1alpha1.Network{PodCIDR: []string{"10.244.0.0/16"}, ServiceCIDR: []string{"10.96.0.0/16"}}
	c.Spec.Hosts = []v1alpha1.Host{
		{Name: "cp1", Address: "192.0.2.11", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}},
		{Name: "w1", Address: "192.0.2.12", Roles: []v1alpha1.Role{v1alpha1.RoleWorker}},
	}
	hosts := make([]facts.Host, len(c.Spec.Hosts))
	for i, spec := range c.Spec.Hosts {
		hosts[i] = facts.Host{Spec: spec, Facts: soundFacts(spec.Name, spec.Address), Uncertainty: time.Second / 2}
	}
	return c, hosts
}

func soundFacts(name, address string) *op.HostFacts {
	f := &op.HostFacts{
		Hostname: "debian", MachineID: "id-" + name, BootID: "boot-" + name, Arch: "amd64", Kernel: "6.1.0-13-amd64",
		OS:   op.OS{ID: "debian", Version: "12", Name: "Debian GNU/Linux 12 (bookworm)"},
		CPUs: 2, MemoryBytes: 4 * gib,
		CgroupVersion: 2, CgroupControllers: []string{"cpuset", "cpu", "io", "memory", "pids"},
		Systemd: "252", SELinux: "disabled",
		Addresses: []op.Address{
			{Link: "lo", Prefix: "127.0.0.1/8"},
			{Link: "eth0", Prefix: address + "/24"},
			{Link: "eth0", Prefix: "fe80::1/64"},
		},
		Routes: []string{"default", "192.0.2.0/24"},
		Present: []string{
			"/usr/bin/systemctl", "/usr/bin/mount", "/usr/bin/umount", "/usr/sbin/losetup", "/sbin/modprobe", "/bin/cp",
		},
		KernelFeatures: []string{"overlay", "br_netfilter", "nf_tables", "ip_tables", "vxlan"},
	}
	for _, dir := range facts.WantedFacts(&v1alpha1.Cluster{}).Dirs {
		f.Disks = append(f.Disks, op.Disk{
			Dir: dir, FS: "ext4", Mount: "/", TotalBytes: 40 * gib, FreeBytes: 30 * gib, FreeInodes: 2_000_000, Inodes: 2_500_000,
		})
	}
	return f
}

// disk changes the disk with a directory.
func disk(f *op.HostFacts, dir string, change func(*op.Disk)) {
	for i := range f.Disks {
		if dir == "*" || f.Disks[i].Dir == dir {
			change(&f.Disks[i])
		}
	}
}

type kubelet = map[string]any

// A row is a change of the sound cluster and its findings: "error id host", or "warning id
// host".
type row struct {
	name, reason string
	change       func(*v1alpha1.Cluster, []facts.Host, *Options)
	want         []string
	says         string // part of the text of the first finding
}

var machineRows = []row{
	{"sound", "a sound host has no findings", func(*v1alpha1.Cluster, []facts.Host, *Options) {}, nil, ""},
	{
		"no systemd", "the kubelet and containerd are units", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Facts.Systemd = "" },
		[]string{"error systemd-missing w1"},
		"process 1 is not systemd",
	},
	{"unknown system", "an untested system may work", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.OS = op.OS{ID: "void", Name: "Void"}
	}, []string{"warning os-unknown w1"}, "runs Void"},
	{"derived from a known system", "ID_LIKE names a known system", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.OS = op.OS{ID: "raspbian", Like: []string{"debian"}}
	}, nil, ""},
	{
		"unnamed system", "an os-release file without names is only a warning",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Facts.OS = op.OS{} },
		[]string{"warning os-unknown w1"},
		"an unnamed system",
	},
	{
		"other architecture", "programs for another architecture do not start",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Spec.Arch = "arm64" },
		[]string{"error architecture-mismatch w1"},
		"has architecture amd64, but the cluster file says arm64",
	},
	{
		"same architecture", "the file and the host agree",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Spec.Arch = "amd64" }, nil, "",
	},
	{"not in the bundle", "the bundle has no programs for the host", func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[1].Facts.Arch, o.Architectures = "arm64", []string{"amd64"}
	}, []string{"error architecture-not-in-bundle w1"}, "has architecture arm64, but the bundle has amd64"},
	{"in the bundle", "the bundle has both architectures", func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[1].Facts.Arch, o.Architectures = "arm64", []string{"amd64", "arm64"}
	}, nil, ""},
	{
		"no machine id", "the machine id identifies a node", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			h[0].Facts.MachineID, h[1].Facts.MachineID = "", ""
		},
		[]string{"error machine-id-missing cp1", "error machine-id-missing w1"},
		"no machine id",
	},
	{
		"programs missing", "one finding lists all programs", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			h[1].Facts.Present = []string{"/bin/mount", "/usr/bin/cp"}
		},
		[]string{"error program-missing w1"},
		"lacks systemctl, umount, losetup, modprobe, which",
	},
	{
		"programs for Docker missing", "pods would get no address", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			c.Spec.ContainerRuntime.Type = "docker"
			h[0].Facts.Present = append(h[0].Facts.Present, "/usr/bin/nsenter", "/sbin/ip")
			h[1].Facts.Present = append(h[1].Facts.Present, "/usr/bin/nsenter")
		},
		[]string{"error program-missing w1"},
		"lacks ip, which",
	},

	{"kernel 5.3", "kubeadm does not support it", kernel("5.3.18"), []string{"error kernel-too-old w1"}, "needs 5.4 or newer"},
	{
		"kernel 4.19", "the major version is compared first", kernel("4.19.0-26-amd64"),
		[]string{"error kernel-too-old w1"},
		"needs 5.4 or newer",
	},
	{"kernel unreadable", "an unreadable version counts as old", kernel("linux"), []string{"error kernel-too-old w1"}, ""},
	{
		"kernel 5.4 with nftables", "the nftables mode of kube-proxy needs a newer kernel", kernel("5.4.0-200-generic"),
		[]string{"error kernel-too-old w1"},
		"5.13 or newer for proxyMode nftables",
	},
	{"kernel 5.12 with nftables", "just below", kernel("5.12.19"), []string{"error kernel-too-old w1"}, "5.13"},
	{"kernel 5.13 with nftables", "just enough", kernel("5.13"), nil, ""},
	{"kernel 5.4 with iptables", "the oldest that is supported", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.Kernel, c.Spec.Kubernetes.ProxyMode = "5.4.0-200-generic", "iptables"
	}, nil, ""},
	{
		"features missing", "each feature is a finding with a remedy",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Facts.KernelFeatures = []string{"overlay"} },
		[]string{"error kernel-feature-missing w1", "error kernel-feature-missing w1", "error kernel-feature-missing w1"},
		"does not have br_netfilter",
	},
	{"no vxlan, host-gw", "flannel does not need vxlan then", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.KernelFeatures = []string{"overlay", "br_netfilter", "nf_tables"}
		c.Spec.Network.Flannel.Backend = "host-gw"
	}, nil, ""},
	{"no nf_tables, iptables", "kube-proxy does not need nf_tables then", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.KernelFeatures = []string{"overlay", "br_netfilter", "ip_tables", "vxlan"}
		c.Spec.Kubernetes.ProxyMode = "iptables"
	}, nil, ""},
	{"iptables missing", "each proxy mode needs its kernel feature", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.KernelFeatures = []string{"overlay", "br_netfilter", "nf_tables", "vxlan"}
		c.Spec.Kubernetes.ProxyMode = "iptables"
	}, []string{"error kernel-feature-missing w1"}, "does not have ip_tables"},
	{
		"ipvs missing", "each proxy mode needs its kernel feature",
		func(c *v1alpha1.Cluster, _ []facts.Host, _ *Options) { c.Spec.Kubernetes.ProxyMode = "ipvs" },
		[]string{"error kernel-feature-missing cp1", "error kernel-feature-missing w1"},
		"does not have ipvs",
	},

	{
		"cgroup v1", "the kubelet needs failCgroupV1: false, which the remedy names", cgroupV1(nil, "v1.35.6"),
		[]string{"error cgroup-v1 w1"},
		"failCgroupV1: false under spec.kubernetes.kubelet.config",
	},
	{"cgroup v1, newest version", "an empty version means the newest", cgroupV1(nil, ""), []string{"error cgroup-v1 w1"}, ""},
	{"cgroup v1, true", "true is the default", cgroupV1(kubelet{"failCgroupV1": true}, "v1.37.1"), []string{"error cgroup-v1 w1"}, ""},
	{"cgroup v1, allowed", "the user has decided", cgroupV1(kubelet{"failCgroupV1": false}, "v1.37.1"), nil, ""},
	{"cgroup v1, 1.34", "older kubelets start on it", cgroupV1(nil, "v1.34.9"), nil, ""},
	{
		"controllers missing", "a kubelet needs them on cgroup v2", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			h[1].Facts.CgroupControllers = []string{"cpu", "pids"}
		},
		[]string{"error cgroup-controller-missing w1"},
		"cpuset, memory",
	},
	{"v1 controllers missing", "a kubelet needs more controllers on cgroup v1", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.CgroupVersion = 1
		c.Spec.Kubernetes.Kubelet.Config = kubelet{"failCgroupV1": false}
	}, []string{"error cgroup-controller-missing w1"}, "cpuacct, devices, freezer"},
}

func kernel(release string) func(*v1alpha1.Cluster, []facts.Host, *Options) {
	return func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Facts.Kernel = release }
}

func cgroupV1(conf map[string]any, version string) func(*v1alpha1.Cluster, []facts.Host, *Options) {
	return func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.CgroupVersion = 1
		h[1].Facts.CgroupControllers = []string{"cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"}
		c.Spec.Kubernetes.Version, c.Spec.Kubernetes.Kubelet.Config = version, conf
	}
}

var surroundingRows = []row{
	{
		"SELinux", "it is untested, but no failure is known",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Facts.SELinux = "enforcing" },
		[]string{"warning selinux-enforcing w1"},
		"",
	},
	{
		"SELinux permissive", "permissive mode denies nothing",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Facts.SELinux = "permissive" }, nil, "",
	},
	{
		"firewall", "the remedy lists the ports to open",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Facts.Firewall = []string{"ufw"} },
		[]string{"warning firewall-active w1"},
		"10250/tcp (kubelet), 10256/tcp (kube-proxy), 8472/udp (flannel)",
	},
	{
		"chain that drops", "the owner of the chain does not matter", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			h[1].Facts.Firewall = []string{"nftables (chain FORWARD of table ip filter)"}
		},
		[]string{"warning firewall-active w1"},
		"nftables (chain FORWARD of table ip filter) drops packets that no rule allows",
	},
	{
		"firewall on a control plane", "a control plane needs more ports",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[0].Facts.Firewall = []string{"firewalld"} },
		[]string{"warning firewall-active cp1"},
		"6443/tcp (kube-apiserver), 2379/tcp (etcd), 2380/tcp (etcd)",
	},
	{
		"swap", "Slipway turns it off",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Facts.Swap = []string{"/dev/sda2"} }, nil, "",
	},
	{"swap left on", "Slipway does not turn it off then", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.Swap, c.Spec.System.SkipConfigure = []string{"/dev/sda2"}, true
	}, []string{"error swap-on w1"}, "swap is on (/dev/sda2)"},
	{"swap left on, tolerated", "the kubelet starts with swap", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.Swap, c.Spec.System.SkipConfigure = []string{"/dev/sda2"}, true
		c.Spec.Kubernetes.Kubelet.Config = kubelet{"failSwapOn": false}
	}, nil, ""},

	{
		"files of a cluster", "one finding lists all files", present("/etc/kubernetes/kubelet.conf", "/var/lib/etcd/member"),
		[]string{"error leftovers w1"},
		"/etc/kubernetes/kubelet.conf, /var/lib/etcd/member",
	},
	{
		"addresses of a network before", "pods would get no address", present(facts.Reservations),
		[]string{"error other-network w1"},
		"addresses reserved for pods of another cluster: /var/lib/cni/networks/cbr0/[0-9a-f]*",
	},
	{
		"links of a network before", "the network plugin rejects them", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			h[1].Facts.Links = []string{"cni0", "eth0", "flannel.1", "lo"}
			h[1].Facts.Addresses = append(h[1].Facts.Addresses, op.Address{Link: "cni0", Prefix: "10.233.64.1/24"})
		},
		[]string{"error other-network w1"},
		"has network interfaces of another pod network: cni0 (10.233.64.1/24), flannel.1",
	},
	{"links of this cluster's network", "a running node has them", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.Ledger, h[1].Facts.Cluster, h[1].Facts.Links = true, "prod", []string{"cni0", "eth0", "flannel.1", "lo"}
	}, nil, ""},
	{
		"drop-in of a package", "the kubelet would not get its settings", dropIn("kubelet.service"),
		[]string{"error unit-drop-in w1"},
		"/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf replaces the command of kubelet.service",
	},
	{"drop-in on a running node", "it may have been added on purpose", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[1].Facts.Ledger, h[1].Facts.Cluster = true, "prod"
		dropIn("kubelet.service")(c, h, o)
	}, []string{"warning unit-drop-in w1"}, ""},
	{"drop-in of etcd on a worker", "a worker does not have this unit", dropIn("etcd.service"), nil, ""},
	{
		"etcd's directory is not empty", "kubeadm requires an empty directory", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			h[0].Facts.Filled, h[1].Facts.Filled = []string{facts.DirEtcd}, []string{facts.DirEtcd}
		},
		[]string{"error leftovers cp1"},
		"/var/lib/etcd is not empty",
	},
	{
		"data directories are not empty", "existing content is not restored completely", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			h[1].Facts.Filled = []string{facts.DirContainerd, facts.DirKubelet}
		},
		[]string{"warning directory-not-empty w1"},
		"has content in /var/lib/kubelet, /var/lib/containerd",
	},
	{"data directories of this cluster", "the cluster fills them", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[0].Facts.Ledger, h[0].Facts.Cluster = true, "prod"
		h[0].Facts.Filled = []string{facts.DirContainerd, facts.DirKubelet, facts.DirEtcd}
	}, nil, ""},
	{
		"programs and settings of its own", "Slipway replaces them", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			h[1].Facts.Present = append(h[1].Facts.Present, "/usr/local/bin/kubectl", "/etc/containerd/config.toml")
			h[1].Facts.Units = []op.UnitFacts{
				{Name: "kubelet.service", Running: true, File: "/etc/systemd/system/kubelet.service"},
				{Name: "containerd.service", File: "/usr/lib/systemd/system/containerd.service"},
				{Name: "docker.service", Running: true, File: "/usr/lib/systemd/system/docker.service"},
			}
		},
		[]string{"warning files-replaced w1"},
		"has /etc/containerd/config.toml, /usr/local/bin/kubectl, kubelet.service (running), containerd.service; Slipway replaces them",
	},
	{
		"another runtime", "two runtimes cannot share their directories", present("/run/docker.sock", "/run/containerd/containerd.sock"),
		[]string{"error runtime-running w1"},
		"",
	},
	{
		"remains of another runtime", "its socket would count as the runtime of the host",
		present("/etc/systemd/system/cri-docker.service"),
		[]string{"error runtime-running w1"},
		"cri-docker.service",
	},
	{
		"another network", "containerd uses the first configuration by name", present("/etc/cni/net.d/*.conflist"),
		[]string{"error other-network w1"},
		"",
	},
	{"files of this cluster", "Slipway wrote them", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.Ledger, h[1].Facts.Cluster = true, "prod"
		h[1].Facts.Present = append(h[1].Facts.Present, "/etc/kubernetes/kubelet.conf",
			"/run/containerd/containerd.sock", "/etc/cni/net.d/*.conflist")
		h[1].Facts.Listeners = []op.Listener{{Port: 10250, Process: "kubelet"}}
		h[1].Facts.Addresses = append(h[1].Facts.Addresses, op.Address{Link: "cni0", Prefix: "10.244.1.1/24"})
	}, nil, ""},
	{
		"a cluster of the same name without state", "a cluster that is not in the state is another one",
		func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
			o.Recorded = false
			h[1].Facts.Ledger, h[1].Facts.Cluster = true, "prod"
			h[1].Facts.Present = append(h[1].Facts.Present, "/etc/kubernetes/kubelet.conf")
			h[1].Facts.Listeners = []op.Listener{{Port: 10250, Process: "kubelet"}}
		},
		[]string{"error other-cluster w1"},
		"belongs to a cluster prod that this manager does not know",
	},
	{"only prepared", "init os saves no state, and create continues", func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
		o.Recorded = false
		h[1].Facts.Ledger, h[1].Facts.Cluster = true, "prod"
	}, nil, ""},
	{
		"a cluster of the same name, to be deleted", "the ledgers of the hosts are enough to delete it",
		func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
			o.Recorded, o.Level = false, operation.RemovalPrecheck
			h[1].Facts.Ledger, h[1].Facts.Cluster = true, "prod"
			h[1].Facts.Present = append(h[1].Facts.Present, "/etc/kubernetes/kubelet.conf")
		}, nil, "",
	},
	{
		"another cluster's host", "there are no other findings, and the host is not changed",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			h[1].Facts.Ledger, h[1].Facts.Cluster, h[1].Facts.CPUs, h[1].Facts.Systemd = true, "other", 0, ""
		},
		[]string{"error other-cluster w1"},
		"belongs to cluster other",
	},
	{
		"ledger without a cluster", "a prepared host can join any cluster",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Facts.Ledger = true }, nil, "",
	},

	{
		"port", "the finding names the process", listener(0, op.Listener{Port: 6443, Process: "nginx"}),
		[]string{"error port-in-use cp1"},
		"port 6443/tcp is in use by nginx; kube-apiserver needs it",
	},
	{
		"port on both families", "one finding for both", listener(0, op.Listener{Port: 2379}, op.Listener{Port: 2379}),
		[]string{"error port-in-use cp1"},
		"an unknown process",
	},
	{
		"control plane's port on a worker", "no component of a worker uses it",
		listener(1, op.Listener{Port: 6443}, op.Listener{Port: 2379}), nil, "",
	},
	{"8472 over UDP", "VXLAN uses it", listener(1, op.Listener{Port: 8472, Protocol: "udp"}), []string{"error port-in-use w1"}, "8472/udp"},
	{"8472 over TCP", "the protocol differs", listener(1, op.Listener{Port: 8472, Protocol: "tcp"}), nil, ""},
	{"kubelet's port over UDP", "the protocol differs", listener(1, op.Listener{Port: 10250, Protocol: "udp"}), nil, ""},
	{"API's own port", "the file may set another port", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		c.Spec.ControlPlaneEndpoint.Port = 8443
		h[0].Facts.Listeners = []op.Listener{{Port: 6443, Process: "a"}, {Port: 8443, Process: "b"}}
	}, []string{"error port-in-use cp1"}, "8443/tcp is in use by b"},
	{"external etcd", "etcd runs on another machine", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		c.Spec.Etcd.Type = "external"
		h[0].Facts.Listeners = []op.Listener{{Port: 2379}}
	}, nil, ""},
}

func present(paths ...string) func(*v1alpha1.Cluster, []facts.Host, *Options) {
	return func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.Present = append(h[1].Facts.Present, paths...)
	}
}

func dropIn(unit string) func(*v1alpha1.Cluster, []facts.Host, *Options) {
	return func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.Units = []op.UnitFacts{{Name: unit, Commands: []string{"/usr/lib/systemd/system/" + unit + ".d/10-kubeadm.conf"}}}
	}
}

func listener(host int, l ...op.Listener) func(*v1alpha1.Cluster, []facts.Host, *Options) {
	return func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[host].Facts.Listeners = l }
}

// The space that a control plane and a worker need on one file system, with a bundle of
// 300 MiB: 300 + 4·300+256 + 256 + 512 (+ 1024).
const (
	controlPlaneDisk = 3548 * mib
	workerDisk       = 2524 * mib
)

var sizeRows = []row{
	{
		"one CPU", "kubeadm requires two CPUs for a control plane",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[0].Facts.CPUs, h[1].Facts.CPUs = 1, 1 },
		[]string{"error cpu-too-few cp1"},
		"has 1 CPU; a control plane needs 2",
	},
	{
		"control plane, 1699 MiB", "kubeadm requires more", memory(0, 1699),
		[]string{"error memory-too-small cp1"},
		"has 1699 MiB of memory; a control plane needs 1700 MiB",
	},
	{"control plane, 1700 MiB", "enough to start", memory(0, 1700), []string{"warning memory-low cp1"}, ""},
	{"control plane, 1800 MiB", "machines with 2 GB have this", memory(0, 1800), nil, ""},
	{
		"worker, 699 MiB", "the kubelet and system pods need more", memory(1, 699),
		[]string{"error memory-too-small w1"},
		"a worker needs 700 MiB",
	},
	{"worker, 700 MiB", "enough to start", memory(1, 700), []string{"warning memory-low w1"}, ""},
	{"worker, 1800 MiB", "enough", memory(1, 1800), nil, ""},

	{
		"disk just too small", "the needs of all directories on a file system are added up", space(0, controlPlaneDisk-1, gib),
		[]string{"error disk-too-small cp1"},
		"/usr/local/bin, /var/lib/containerd, /var/lib/etcd, /var/lib/kubelet, /var/lib/slipway",
	},
	{"disk just enough", "15 % of a small file system remain free", space(0, controlPlaneDisk, 0), nil, ""},
	{
		"worker's disk just too small", "a worker has no etcd", space(1, workerDisk-1, gib),
		[]string{"error disk-too-small w1"},
		"this node needs 2.4 GiB",
	},
	{
		"worker's disk low", "the kubelet would delete images of the bundle", space(1, workerDisk+14*gib/100, gib),
		[]string{"warning disk-low w1"},
		"below 15 %",
	},
	{"worker's disk not low", "just above", space(1, workerDisk+15*gib/100+1, gib), nil, ""},
	{"worker's disk low, thresholds set", "the user has decided", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		space(1, workerDisk, gib)(c, h, o)
		c.Spec.Kubernetes.Kubelet.Config = kubelet{"imageGCHighThresholdPercent": 100, "evictionHard": kubelet{}}
	}, nil, ""},
	{
		"large bundle", "the size of the bundle counts, and four times that unpacked",
		func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
			space(1, 5*gib+1024*mib-1, gib)(c, h, o)
			o.ImagesBytes = gib
		},
		[]string{"error disk-too-small w1"},
		"this node needs 6 GiB",
	},
	{"separate file systems", "each file system is checked separately", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		disk(h[0].Facts, facts.DirEtcd, func(d *op.Disk) { d.Mount, d.FreeBytes = "/var/lib/etcd", gib-1 })
	}, []string{"error disk-too-small cp1"}, "has 1023.9 MiB free for /var/lib/etcd; this node needs 1 GiB"},
	{
		"Docker's file system", "Docker stores images there", docker(4*300*mib - 1),
		[]string{"error disk-too-small w1"},
		"free for /var/lib/docker; this node needs 1.1 GiB",
	},
	{"Docker's file system, large enough", "containerd stores no images then", docker(4 * 300 * mib), nil, ""},
	{
		"running node's disk low", "a running node needs no space for existing content", running(4*gib-1, 40*gib),
		[]string{"warning disk-low w1"},
		"below 10 %",
	},
	{"running node's disk not low", "just enough", running(4*gib, 40*gib), nil, ""},
	{
		"running node's disk full", "the node would stop working", running(leastFree-1, gib),
		[]string{"error disk-too-small w1"},
		"to keep working",
	},
	{"running node's small disk", "just enough", running(leastFree, gib), nil, ""},

	{"few inodes", "images are many small files", inodes(9_999), []string{"error inodes-too-few w1"}, "has 9999 inodes free"},
	{"some inodes", "larger images will fail", inodes(10_000), []string{"warning inodes-too-few w1"}, ""},
	{"many inodes", "enough", inodes(100_000), nil, ""},
	{"no fixed number of inodes", "btrfs has no fixed number", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		disk(h[1].Facts, "*", func(d *op.Disk) { d.Inodes, d.FreeInodes, d.FS = 0, 0, "btrfs" })
	}, nil, ""},

	{
		"containerd on overlay", "an overlay on an overlay does not work", filesystem(1, facts.DirContainerd, "overlay"),
		[]string{"error filesystem-unfit w1"},
		"/var/lib/containerd is on overlay",
	},
	{"containerd on overlay, with Docker", "it uses no overlay", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		docker(40*gib)(c, h, o)
		filesystem(1, facts.DirContainerd, "overlay")(c, h, o)
	}, nil, ""},
	{"Docker on overlay", "an overlay on an overlay does not work", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		docker(40*gib)(c, h, o)
		filesystem(1, facts.DirDocker, "overlay")(c, h, o)
	}, []string{"error filesystem-unfit w1"}, "/var/lib/docker is on overlay"},
	{
		"containerd on NFS", "an overlay on NFS does not work", filesystem(1, facts.DirContainerd, "nfs4"),
		[]string{"error filesystem-unfit w1"},
		"",
	},
	{"kubelet on overlay", "it uses no overlay", filesystem(1, facts.DirKubelet, "overlay"), nil, ""},
	{"etcd on NFS", "slow writes disturb etcd", filesystem(0, facts.DirEtcd, "nfs"), []string{"error filesystem-unfit cp1"}, ""},
	{"etcd on NFS of a worker", "a worker has no etcd data", filesystem(1, facts.DirEtcd, "nfs"), nil, ""},
	{
		"etcd in memory", "it is enough for a trial", filesystem(0, facts.DirEtcd, "tmpfs"),
		[]string{"warning filesystem-temporary cp1"},
		"the next reboot deletes the data",
	},
	{"programs on noexec", "they would not start", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		disk(h[1].Facts, facts.DirPrograms, func(d *op.Disk) { d.NoExec = true })
	}, []string{"error filesystem-noexec w1"}, "/usr/local/bin"},
	{"plugins on noexec", "they would not start either", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		disk(h[1].Facts, facts.DirPlugins, func(d *op.Disk) { d.NoExec = true })
	}, []string{"error filesystem-noexec w1"}, "/opt/cni/bin"},
	{"containerd on noexec", "an overlay does not inherit noexec", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		disk(h[1].Facts, facts.DirContainerd, func(d *op.Disk) { d.NoExec = true })
	}, nil, ""},
	{"read-only", "nothing can be written there", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		disk(h[1].Facts, facts.DirKubelet, func(d *op.Disk) { d.ReadOnly = true })
	}, []string{"error filesystem-read-only w1"}, "/var/lib/kubelet"},
}

func memory(host int, mebibytes uint64) func(*v1alpha1.Cluster, []facts.Host, *Options) {
	return func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[host].Facts.MemoryBytes = mebibytes * mib }
}

func space(host int, free, total uint64) func(*v1alpha1.Cluster, []facts.Host, *Options) {
	return func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		disk(h[host].Facts, "*", func(d *op.Disk) { d.FreeBytes, d.TotalBytes = free, total })
	}
}

// docker makes Docker run containers, with the given space for images and little space for
// containerd.
func docker(free uint64) func(*v1alpha1.Cluster, []facts.Host, *Options) {
	return func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		c.Spec.ContainerRuntime.Type = "docker"
		for _, host := range h {
			host.Facts.Present = append(host.Facts.Present, "/usr/bin/nsenter", "/usr/sbin/ip")
			disk(host.Facts, facts.DirContainerd, func(d *op.Disk) { d.Mount, d.FreeBytes, d.TotalBytes = "/var/lib/containerd", 512*mib, 512*mib })
		}
		h[1].Facts.Disks = append(h[1].Facts.Disks, op.Disk{Dir: facts.DirDocker, FS: "ext4", Mount: "/var/lib/docker", FreeBytes: free})
	}
}

func running(free, total uint64) func(*v1alpha1.Cluster, []facts.Host, *Options) {
	return func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		space(1, free, total)(c, h, o)
		h[1].Facts.Ledger, h[1].Facts.Cluster = true, "prod"
	}
}

func inodes(free uint64) func(*v1alpha1.Cluster, []facts.Host, *Options) {
	return func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		disk(h[1].Facts, "*", func(d *op.Disk) { d.FreeInodes = free })
	}
}

func filesystem(host int, dir, fs string) func(*v1alpha1.Cluster, []facts.Host, *Options) {
	return func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		disk(h[host].Facts, dir, func(d *op.Disk) { d.FS = fs })
	}
}

var unreachable = &remote.Error{Host: "w1", Reason: remote.AuthFailed, Cause: "wrong password for root", Remedy: "correct it"}

var optionRows = []row{
	{"unreachable", "the id is the reason, and the other hosts are checked", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts, h[1].Err = nil, errors.Join(unreachable)
		h[0].Facts.CPUs = 1
	}, []string{"error cpu-too-few cp1", "error ssh-auth-failed w1"}, ""},
	{
		"no answer", "an error of another kind",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Facts, h[1].Err = nil, errors.New("odd") },
		[]string{"error host-facts w1"},
		"odd",
	},
	{
		"no facts", "a host without facts and error is not sound",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Facts = nil },
		[]string{"error host-facts w1"},
		"",
	},
	{"ignored", "the finding remains as a warning", func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[0].Facts.CPUs, o.Ignore = 1, []string{"cpu-too-few"}
	}, []string{"warning cpu-too-few cp1"}, "(ignored with --ignore-check)"},
	{"misspelled", "the message suggests a similar id", func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[0].Facts.CPUs, o.Ignore = 1, []string{"cpu-to-few"}
	}, []string{"error unknown-check ", "error cpu-too-few cp1"}, "cpu-too-few"},
	{
		"unknown id", "the remedy says where the ids are", func(_ *v1alpha1.Cluster, _ []facts.Host, o *Options) { o.Ignore = []string{"x"} },
		[]string{"error unknown-check "},
		"in brackets",
	},
	{"unreachable cannot be ignored", "the operation cannot continue without the host", func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[1].Facts, h[1].Err = nil, unreachable
		o.Ignore = []string{string(remote.AuthFailed)}
	}, []string{"error unknown-check ", "error ssh-auth-failed w1"}, "cannot be ignored"},
	{"other cluster cannot be ignored", "the other cluster would be destroyed", func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[1].Facts.Ledger, h[1].Facts.Cluster, o.Ignore = true, "other", []string{"other-cluster"}
	}, []string{"error unknown-check ", "error other-cluster w1"}, ""},
	{"delete", "a removal needs no space", func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[0].Facts.CPUs, h[1].Facts.Disks, h[1].Facts.MachineID, o.Level = 0, nil, "id-cp1", operation.RemovalPrecheck
	}, nil, ""},
	{"delete, unreachable", "it cannot be restored", func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[1].Facts, h[1].Err, o.Level = nil, unreachable, operation.RemovalPrecheck
	}, []string{"error ssh-auth-failed w1"}, ""},
	{"delete, other cluster", "the host belongs to another cluster", func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[1].Facts.Ledger, h[1].Facts.Cluster, o.Level = true, "other", operation.RemovalPrecheck
	}, []string{"error other-cluster w1"}, ""},
	{"init-os", "the system is checked, space and ports are not", func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[0].Facts.CPUs, h[0].Facts.Listeners, h[0].Facts.Systemd, o.Level = 1, []op.Listener{{Port: 6443}}, "", operation.SystemPrecheck
		h[1].Spec.InternalAddress = "192.0.2.11"
	}, []string{"error systemd-missing cp1"}, ""},
	{"an upgrade", "the host has two versions during the upgrade", func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[1].Facts.Ledger, h[1].Facts.Cluster, o.Upgrades = true, "prod", true
		for i := range h[1].Facts.Disks {
			h[1].Facts.Disks[i].FreeBytes = gib
		}
	}, []string{"error disk-too-small w1"}, "to hold another version in addition to the current one"},
	{"an upgrade with space", "there is enough", func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[1].Facts.Ledger, h[1].Facts.Cluster, o.Upgrades = true, "prod", true
	}, nil, ""},
	{"a clone in another cluster", "machines of other clusters are not compared", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.Ledger, h[1].Facts.Cluster, h[1].Facts.MachineID = true, "other", "id-cp1"
	}, []string{"error other-cluster w1"}, ""},
}

func allRows() []row {
	return slices.Concat(machineRows, surroundingRows, sizeRows, networkRows, etcdRows, endpointRows, optionRows)
}

func TestCheckHosts_PerRow(t *testing.T) {
	for _, tt := range allRows() {
		t.Run(tt.name, func(t *testing.T) {
			c, hosts := sound()
			o := Options{Recorded: true}
			tt.change(c, hosts, &o)
			found := CheckHosts(c, hosts, o)
			var got []string
			for _, d := range found {
				got = append(got, string(d.Severity)+" "+d.ID+" "+d.Host)
				if d.Message == "" || d.Hint == "" && d.ID != "host-facts" {
					t.Errorf("%s has no message or no remedy: %+v", d.ID, d)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s\n%v", tt.reason, diff, found)
			}
			if text := found.Error(); !strings.Contains(text, tt.says) {
				t.Errorf("%s: the report is\n%s\nwant it to say %q", tt.reason, text, tt.says)
			}
		})
	}
}

// TestCheckHosts_EveryIDHasRow: each id occurs in a row above, as an error or a warning.
func TestCheckHosts_EveryIDHasRow(t *testing.T) {
	tried := map[string]bool{}
	for _, tt := range allRows() {
		for _, w := range tt.want {
			tried[strings.Fields(w)[1]] = true
		}
	}
	for _, tt := range readyRows() {
		for _, w := range tt.want {
			tried[strings.Fields(w)[1]] = true
		}
	}
	for _, id := range append(IDs(), fatalIDs()...) {
		if !tried[id] && id != idAddons { // reported when add-ons are loaded
			t.Errorf("no row finds %s", id)
		}
	}
}

// TestCheckHosts_MatchesGoldenReport compares a whole report as a user reads it.
func TestCheckHosts_MatchesGoldenReport(t *testing.T) {
	c, hosts := sound()
	hosts[0].Facts.CPUs = 1
	hosts[0].Facts.MemoryBytes = 1024 * mib
	hosts[0].Facts.Listeners = []op.Listener{{Port: 6443, Protocol: "tcp", Process: "nginx (pid 812)"}}
	hosts[0].Facts.Firewall = []string{"firewalld"}
	hosts[1].Facts, hosts[1].Err = nil, unreachable
	c.Spec.Hosts = append(c.Spec.Hosts, v1alpha1.Host{Name: "w2", Address: "192.0.2.13", Roles: []v1alpha1.Role{v1alpha1.RoleWorker}})
	hosts = append(hosts, facts.Host{Spec: c.Spec.Hosts[2], Facts: soundFacts("w2", "192.0.2.14"), Skew: 90 * time.Second})
	got := CheckHosts(c, hosts, Options{Ignore: []string{"memory-too-small"}}).Error() + "\n"
	golden.Check(t, "testdata/report.golden", got)
}
