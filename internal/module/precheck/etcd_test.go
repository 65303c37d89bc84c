package precheck

import (
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
)

// alone makes the worker a host with only etcd.
func alone(c *v1alpha1.Cluster, h []facts.Host) {
	c.Spec.Etcd.Type = "managed"
	c.Spec.Hosts[1].Roles = []v1alpha1.Role{v1alpha1.RoleEtcd}
	h[1].Spec = c.Spec.Hosts[1]
}

func external(c *v1alpha1.Cluster) {
	c.Spec.Etcd = v1alpha1.Etcd{
		Type:     "external",
		External: &v1alpha1.ExternalEtcd{Endpoints: []string{"https://192.0.2.21:2379", "https://192.0.2.22:2379"}},
	}
}

var etcdRows = []row{
	{"etcd alone", "a host with only etcd needs nothing for containers", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		alone(c, h)
		f := h[1].Facts
		f.KernelFeatures, f.CgroupVersion, f.CgroupControllers, f.Kernel, f.MemoryBytes = nil, 1, nil, "4.19.0", 512*mib
		f.Swap, c.Spec.System.SkipConfigure = []string{"/dev/vda2"}, true
		f.Addresses = append(f.Addresses, op.Address{Link: "docker0", Prefix: "10.244.1.1/24"})
		f.Present = append(f.Present, "/run/docker.sock", "/etc/cni/net.d/*.conflist")
		f.Listeners = []op.Listener{{Port: 10250}}
		disk(f, "*", func(d *op.Disk) { d.FreeBytes = 2 * gib })
	}, nil, ""},
	{"etcd alone, too small", "a host with only etcd has lower limits", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		alone(c, h)
		h[1].Facts.MemoryBytes = 256 * mib
		h[1].Facts.Listeners = []op.Listener{{Port: 2379, Process: "etcd (pid 3)"}}
		disk(h[1].Facts, "*", func(d *op.Disk) { d.FreeBytes = gib })
	}, []string{"error memory-too-small w1", "error disk-too-small w1", "error port-in-use w1"}, "a host with only etcd needs 400 MiB"},
	{"data lost", "the other members rely on acknowledged writes", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		alone(c, h)
		h[1].Facts.Ledger, h[1].Facts.Cluster = true, "prod"
		h[1].Facts.Present = append(h[1].Facts.Present, facts.EtcdJoined)
	}, []string{"error etcd-data-lost w1"}, "its data is not in /var/lib/etcd"},
	{"data of a member in a pod lost", "the cluster would start empty", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[0].Facts.Ledger, h[0].Facts.Cluster = true, "prod"
		h[0].Facts.Present = append(h[0].Facts.Present, facts.EtcdJoined)
	}, []string{"error etcd-data-lost cp1"}, "its data is not in /var/lib/etcd"},
	{"data present", "the member continues with its data", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		alone(c, h)
		h[1].Facts.Ledger, h[1].Facts.Cluster = true, "prod"
		h[1].Facts.Present = append(h[1].Facts.Present, facts.EtcdJoined, facts.EtcdData)
	}, nil, ""},
	{"external etcd unreachable", "no API server would start", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		external(c)
		h[0].Facts.Unreached = facts.RequiredPeers(c, h[0].Spec.Roles)
		h[1].Facts.Unreached = slices.Clone(h[0].Facts.Unreached)
	}, []string{"error etcd-unreachable cp1"}, "cannot reach etcd at 192.0.2.21:2379, 192.0.2.22:2379"},
	{"one member of an external etcd unreachable", "the other members are enough", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		external(c)
		h[0].Facts.Unreached = facts.RequiredPeers(c, h[0].Spec.Roles)[:1]
	}, []string{"warning etcd-unreachable cp1"}, ""},
}
