package precheck

import (
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
)

var networkRows = []row{
	{
		"address not there", "the kubelet binds to it",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Spec.InternalAddress = "192.0.2.99" },
		[]string{"error internal-address-missing w1"},
		"it has 192.0.2.12",
	},
	{"another of its addresses", "the internal one counts", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Spec.Address, h[1].Spec.InternalAddress = "203.0.113.5", "192.0.2.12"
	}, nil, ""},
	{
		"a name", "nodes need an address", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Spec.Address = "w1.example.com" },
		[]string{"error internal-address-missing w1"},
		"write one of these addresses at spec.hosts[1].internalAddress",
	},
	{
		"loopback", "it is itself everywhere", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Spec.Address = "127.0.0.1" },
		[]string{"error internal-address-missing w1"},
		"127.0.0.1 is the local host on every host",
	},
	{
		"no address at all", "there is none to propose", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Facts.Addresses = nil },
		[]string{"error internal-address-missing w1"},
		"it has no address that other nodes can use",
	},
	{
		"dual stack, one address", "flannel does not start there, and the node is of one version",
		func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
			dualStack(c)
			h[0].Facts.Addresses = append(h[0].Facts.Addresses, op.Address{Link: "eth0", Prefix: "2001:db8::11/64"})
		},
		[]string{"error dual-stack-address-missing w1"},
		"has no IPv6 address",
	},
	{"dual stack", "each host has both", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		dualStack(c)
		for i := range h {
			h[i].Facts.Addresses = append(h[i].Facts.Addresses, op.Address{Link: "eth0", Prefix: "2001:db8::1" + string(rune('1'+i)) + "/64"})
		}
	}, nil, ""},
	{
		"dual stack, two interfaces", "flannel uses one for both", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			dualStack(c)
			h[0].Facts.Addresses = append(h[0].Facts.Addresses, op.Address{Link: "eth0", Prefix: "2001:db8::11/64"})
			h[1].Facts.Addresses = append(h[1].Facts.Addresses, op.Address{Link: "eth1", Prefix: "2001:db8:1::12/64"})
		},
		[]string{"error dual-stack-address-missing w1"},
		"has its IPv6 address 2001:db8:1::12 on eth1 and its other address 192.0.2.12 on eth0; flannel needs both on one interface",
	},
	{"dual stack, two interfaces, another pod network", "it may use both", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		dualStack(c)
		c.Spec.Network.Plugin = "none"
		for i := range h {
			h[i].Facts.Addresses = append(h[i].Facts.Addresses, op.Address{Link: "eth1", Prefix: "2001:db8::1" + string(rune('1'+i)) + "/64"})
		}
	}, nil, ""},
	{
		"address on lo", "flannel would send the pods' packets there", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			h[1].Spec.Address = "198.51.100.7"
			h[1].Facts.Addresses = append(h[1].Facts.Addresses, op.Address{Link: "lo", Prefix: "198.51.100.7/32"})
		},
		[]string{"error internal-address-missing w1"},
		"has the address 198.51.100.7 only on lo",
	},
	{
		"address on lo of a node that runs", "its cluster can still be changed", func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
			h[1].Spec.Address = "198.51.100.7"
			h[1].Facts.Addresses = append(h[1].Facts.Addresses, op.Address{Link: "lo", Prefix: "198.51.100.7/32"})
			h[1].Facts.Ledger, h[1].Facts.Cluster, o.Recorded = true, "prod", true
		},
		[]string{"warning internal-address-missing w1"},
		"has the address 198.51.100.7 only on lo",
	},
	{"address twice", "packets for one go to the other", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[0].Facts.Addresses = append(h[0].Facts.Addresses, op.Address{Link: "eth1", Prefix: "192.0.2.12/24"})
	}, []string{"error address-in-use w1"}, "the address 192.0.2.12 is also on an interface of cp1"},

	{"address in the pod network", "it is lost to pods", addresses(op.Address{Link: "eth1", Prefix: "10.244.3.4/8"}),
		[]string{"error network-overlap w1", "warning network-overlap w1"}, "contains the address 10.244.3.4 of this host (eth1)"},
	{"network in the pod network", "its addresses would be pods'",
		addresses(op.Address{Link: "eth1", Prefix: "10.244.0.5/16"}), []string{"error network-overlap w1"}, ""},
	{
		"wider network", "only what is far is hidden", addresses(op.Address{Link: "eth1", Prefix: "10.0.0.5/8"}),
		[]string{"warning network-overlap w1", "warning network-overlap w1"},
		"the pod network 10.244.0.0/16 lies within the network 10.0.0.0/8 (eth1)",
	},
	{"network beside", "none of them touch", addresses(op.Address{Link: "eth1", Prefix: "10.245.0.5/16"}), nil, ""},
	{"route in the service network", "a Service would be taken for a machine", routes("10.96.5.0/24"),
		[]string{"error network-overlap w1"}, "the service network 10.96.0.0/16 overlaps with the route to 10.96.5.0/24"},
	{"route to all", "the default takes what nothing else does", routes("0.0.0.0/0", "default", "::/0"), nil, ""},
	{
		"no default route", "a packet to a Service finds no way out", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			h[1].Facts.Routes = []string{"192.0.2.0/24"}
		},
		[]string{"warning default-route-missing w1"},
		"ip route add default dev eth0 metric 4096",
	},
	{"no default route, but one to Services", "somebody has added it", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.Routes = []string{"192.0.2.0/24", "10.0.0.0/8"}
	}, []string{"warning network-overlap w1", "warning network-overlap w1"}, ""},
	{"VPN's halves of all", "narrower than all, wider than ours", routes("0.0.0.0/1", "128.0.0.0/1"),
		[]string{"warning network-overlap w1", "warning network-overlap w1"}, ""},
	{"route that cannot be read", "unknown words are passed over", routes("blackhole"), nil, ""},
	{"IPv6 beside IPv4", "families do not overlap", addresses(op.Address{Link: "eth1", Prefix: "fd00::5/8"}), nil, ""},
	{"our own pod network", "a node of this cluster has a part of it", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[1].Facts.Ledger, h[1].Facts.Cluster = true, "prod"
		routes("10.244.0.0/24", "10.244.1.0/24")(c, h, o)
	}, nil, ""},

	{
		"the API's name elsewhere", "a node would join what is there, or nothing",
		named("api.prod.internal", "192.0.2.9"),
		[]string{"error hosts-file-conflict w1"},
		"maps api.prod.internal to 192.0.2.9; for this host the API is at 192.0.2.11",
	},
	{"the API's name, right", "somebody was faster", named("api.prod.internal", "192.0.2.11"), nil, ""},
	{"the API's name, at a load balancer", "its address is what counts", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		c.Spec.ControlPlaneEndpoint.Mode, c.Spec.ControlPlaneEndpoint.Address = v1alpha1.EndpointExternal, "192.0.2.9"
		named("api.prod.internal", "192.0.2.9")(c, h, o)
	}, nil, ""},
	{"the API's name, as the user has it resolved", "it is theirs to say", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		c.Spec.ControlPlaneEndpoint.Mode = v1alpha1.EndpointExternal
		named("api.prod.internal", "192.0.2.9")(c, h, o)
	}, nil, ""},
	{"another host's name", "programs would look for it there", named("cp1", "192.0.2.9"),
		[]string{"warning hosts-file-conflict w1"}, "that host is at 192.0.2.11"},
	{"its own name, on loopback", "Debian writes that", named("w1", "127.0.1.1"), nil, ""},
	{"its own name, elsewhere", "it would not find itself", named("w1", "192.0.2.9"), []string{"warning hosts-file-conflict w1"}, ""},
	{"no name of ours, no address", "nothing to say", named("git", "192.0.2.9", "cp1", "x"), nil, ""},

	{"no resolv.conf", "the kubelet fails for every pod", resolver(op.Resolver{Path: "/etc/resolv.conf", Missing: true}),
		[]string{"error dns-server-missing w1"}, "has no /etc/resolv.conf"},
	{"no DNS server", "CoreDNS does not start", resolver(op.Resolver{Path: "/etc/resolv.conf"}),
		[]string{"error dns-server-missing w1"}, "has no DNS server"},
	{"no DNS server, upstream written", "CoreDNS asks that", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		c.Spec.DNS.Upstream = []string{"192.0.2.53"}
		resolver(op.Resolver{Path: "/etc/resolv.conf"})(c, h, o)
	}, nil, ""},
	{"a DNS server on loopback", "CoreDNS would ask itself",
		resolver(op.Resolver{Path: "/etc/resolv.conf", Servers: []string{"192.0.2.53", "127.0.0.1"}}),
		[]string{"error dns-server-missing w1"}, "would query itself"},
	{"DNS servers", "as it should be",
		resolver(op.Resolver{Path: "/etc/resolv.conf", Servers: []string{"192.0.2.53", "2001:db8::53"}}), nil, ""},
	{"the kubelet has a file of its own", "the user has decided", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		c.Spec.Kubernetes.Kubelet.Config = kubelet{"resolvConf": "/etc/pods.conf"}
		resolver(op.Resolver{Path: "/etc/resolv.conf", Missing: true})(c, h, o)
	}, nil, ""},
	{"no DNS server on a node that runs", "nobody has missed it", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[1].Facts.Ledger, h[1].Facts.Cluster = true, "prod"
		resolver(op.Resolver{Path: "/etc/resolv.conf"})(c, h, o)
	}, []string{"warning dns-server-missing w1"}, ""},

	{
		"same machine", "it answers under two names", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			h[1].Facts = h[0].Facts
			h[1].Spec.Address = "192.0.2.11"
		},
		[]string{"error same-machine w1"},
		"is the same machine as cp1",
	},
	{
		"cloned machine", "two machines, one identity",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Facts.MachineID = h[0].Facts.MachineID },
		[]string{"error machine-id-duplicate w1"},
		"systemd-machine-id-setup",
	},

	{"clock 6 s off", "to within what can be measured", skew(0, 6*time.Second), nil, ""},
	{"clock 7 s off", "beyond any error of measuring", skew(0, 7*time.Second), []string{"error clock-skew w1"}, "7s ahead of"},
	{"clock behind", "either way", skew(0, -7*time.Second), []string{"error clock-skew cp1"}, "7s ahead of"},
	{"all clocks with us a minute off", "to within the error", skew(time.Minute, time.Minute), nil, ""},
	{"all clocks off", "this machine's is the odd one", skew(-2*time.Minute, -2*time.Minute),
		[]string{"warning clock-manager "}, "2m0s behind the clock of this machine"},
}

func named(list ...string) func(*v1alpha1.Cluster, []facts.Host, *Options) {
	return func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		c.Spec.ControlPlaneEndpoint.Domain = "api.prod.internal"
		for i := 0; i < len(list); i += 2 {
			h[1].Facts.Named = append(h[1].Facts.Named, op.Named{Name: list[i], Address: list[i+1]})
		}
	}
}

func resolver(r op.Resolver) func(*v1alpha1.Cluster, []facts.Host, *Options) {
	return func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Facts.Resolver = &r }
}

func dualStack(c *v1alpha1.Cluster) {
	c.Spec.Network.PodCIDR = append(c.Spec.Network.PodCIDR, "fd00:244::/56")
	c.Spec.Network.ServiceCIDR = append(c.Spec.Network.ServiceCIDR, "fd00:96::/112")
}

func addresses(a ...op.Address) func(*v1alpha1.Cluster, []facts.Host, *Options) {
	return func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.Addresses = append(h[1].Facts.Addresses, a...)
	}
}

func routes(r ...string) func(*v1alpha1.Cluster, []facts.Host, *Options) {
	return func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.Routes = append(h[1].Facts.Routes, r...)
	}
}

func skew(a, b time.Duration) func(*v1alpha1.Cluster, []facts.Host, *Options) {
	return func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[0].Skew, h[1].Skew = a, b
		h[0].Uncertainty, h[1].Uncertainty = time.Second/2, time.Second/2
	}
}
