package precheck

import (
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
)

var networkRows = []row{
	{
		"missing address", "the kubelet binds to it",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Spec.InternalAddress = "192.0.2.99" },
		[]string{"error internal-address-missing w1"},
		"it has 192.0.2.12",
	},
	{"another of its addresses", "only the internal address counts", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Spec.Address, h[1].Spec.InternalAddress = "203.0.113.5", "192.0.2.12"
	}, nil, ""},
	{
		"a name", "nodes need an address", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Spec.Address = "w1.example.com" },
		[]string{"error internal-address-missing w1"},
		"write one of these addresses at spec.hosts[1].internalAddress",
	},
	{
		"loopback", "every host has this address", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Spec.Address = "127.0.0.1" },
		[]string{"error internal-address-missing w1"},
		"127.0.0.1 is the local host on every host",
	},
	{
		"no address at all", "there is no address to suggest",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Facts.Addresses = nil },
		[]string{"error internal-address-missing w1"},
		"it has no address that other nodes can use",
	},
	{
		"dual stack, one address", "flannel does not start, and the node has one IP version",
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
		"dual stack, two interfaces", "flannel uses one interface for both", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			dualStack(c)
			h[0].Facts.Addresses = append(h[0].Facts.Addresses, op.Address{Link: "eth0", Prefix: "2001:db8::11/64"})
			h[1].Facts.Addresses = append(h[1].Facts.Addresses, op.Address{Link: "eth1", Prefix: "2001:db8:1::12/64"})
		},
		[]string{"error dual-stack-address-missing w1"},
		"has its IPv6 address 2001:db8:1::12 on eth1 and its other address 192.0.2.12 on eth0; flannel needs both on one interface",
	},
	{"dual stack, two interfaces, another pod network", "another network may use both", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		dualStack(c)
		c.Spec.Network.Plugin = "none"
		for i := range h {
			h[i].Facts.Addresses = append(h[i].Facts.Addresses, op.Address{Link: "eth1", Prefix: "2001:db8::1" + string(rune('1'+i)) + "/64"})
		}
	}, nil, ""},
	{
		"address on lo", "flannel would send packets of pods there", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			h[1].Spec.Address = "198.51.100.7"
			h[1].Facts.Addresses = append(h[1].Facts.Addresses, op.Address{Link: "lo", Prefix: "198.51.100.7/32"})
		},
		[]string{"error internal-address-missing w1"},
		"has the address 198.51.100.7 only on lo",
	},
	{
		"address on lo of a running node", "the cluster can still be changed", func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
			h[1].Spec.Address = "198.51.100.7"
			h[1].Facts.Addresses = append(h[1].Facts.Addresses, op.Address{Link: "lo", Prefix: "198.51.100.7/32"})
			h[1].Facts.Ledger, h[1].Facts.Cluster, o.Recorded = true, "prod", true
		},
		[]string{"warning internal-address-missing w1"},
		"has the address 198.51.100.7 only on lo",
	},
	{"address twice", "packets for one host go to the other", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[0].Facts.Addresses = append(h[0].Facts.Addresses, op.Address{Link: "eth1", Prefix: "192.0.2.12/24"})
	}, []string{"error address-in-use w1"}, "the address 192.0.2.12 is also on an interface of cp1"},

	{
		"address in the pod network", "pods cannot reach it", addresses(op.Address{Link: "eth1", Prefix: "10.244.3.4/8"}),
		[]string{"error network-overlap w1", "warning network-overlap w1"},
		"contains the address 10.244.3.4 of this host (eth1)",
	},
	{
		"network in the pod network", "its addresses would belong to pods",
		addresses(op.Address{Link: "eth1", Prefix: "10.244.0.5/16"}),
		[]string{"error network-overlap w1"},
		"",
	},
	{
		"wider network", "only distant hosts are hidden", addresses(op.Address{Link: "eth1", Prefix: "10.0.0.5/8"}),
		[]string{"warning network-overlap w1", "warning network-overlap w1"},
		"the pod network 10.244.0.0/16 lies within the network 10.0.0.0/8 (eth1)",
	},
	{"adjacent network", "the networks do not overlap", addresses(op.Address{Link: "eth1", Prefix: "10.245.0.5/16"}), nil, ""},
	{
		"route in the service network", "requests to Services would leave the host", routes("10.96.5.0/24"),
		[]string{"error network-overlap w1"},
		"the service network 10.96.0.0/16 overlaps with the route to 10.96.5.0/24",
	},
	{"route to all", "the default route has the lowest priority", routes("0.0.0.0/0", "default", "::/0"), nil, ""},
	{
		"no default route", "a packet to a Service has no route", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			h[1].Facts.Routes = []string{"192.0.2.0/24"}
		},
		[]string{"warning default-route-missing w1"},
		"ip route add default dev eth0 metric 4096",
	},
	{"no default route, but one to Services", "the route to Services is enough", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		h[1].Facts.Routes = []string{"192.0.2.0/24", "10.0.0.0/8"}
	}, []string{"warning network-overlap w1", "warning network-overlap w1"}, ""},
	{
		"two halves of a VPN", "they are wider than our networks", routes("0.0.0.0/1", "128.0.0.0/1"),
		[]string{"warning network-overlap w1", "warning network-overlap w1"},
		"",
	},
	{"route that cannot be read", "unknown words are ignored", routes("blackhole"), nil, ""},
	{"IPv6 beside IPv4", "IP versions do not overlap", addresses(op.Address{Link: "eth1", Prefix: "fd00::5/8"}), nil, ""},
	{"pod network of this cluster", "a node has a part of it", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[1].Facts.Ledger, h[1].Facts.Cluster = true, "prod"
		routes("10.244.0.0/24", "10.244.1.0/24")(c, h, o)
	}, nil, ""},

	{
		"API name at another address", "a node would join another cluster, or none",
		named("api.prod.internal", "192.0.2.9"),
		[]string{"error hosts-file-conflict w1"},
		"maps api.prod.internal to 192.0.2.9; for this host the API is at 192.0.2.11",
	},
	{"API name at the right address", "the entry is already correct", named("api.prod.internal", "192.0.2.11"), nil, ""},
	{"API name at a load balancer", "the address of the load balancer is compared", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		c.Spec.ControlPlaneEndpoint.Mode, c.Spec.ControlPlaneEndpoint.Address = v1alpha1.EndpointExternal, "192.0.2.9"
		named("api.prod.internal", "192.0.2.9")(c, h, o)
	}, nil, ""},
	{"API name in the DNS of the user", "the user decides", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		c.Spec.ControlPlaneEndpoint.Mode = v1alpha1.EndpointExternal
		named("api.prod.internal", "192.0.2.9")(c, h, o)
	}, nil, ""},
	{
		"another host's name", "programs would connect to the wrong address", named("cp1", "192.0.2.9"),
		[]string{"warning hosts-file-conflict w1"},
		"that host is at 192.0.2.11",
	},
	{"own name on loopback", "Debian writes this entry", named("w1", "127.0.1.1"), nil, ""},
	{
		"own name at another address", "the host would not reach itself", named("w1", "192.0.2.9"),
		[]string{"warning hosts-file-conflict w1"},
		"",
	},
	{"other names and invalid lines", "nothing to say", named("git", "192.0.2.9", "cp1", "x"), nil, ""},

	{
		"no resolv.conf", "the kubelet fails for every pod", resolver(op.Resolver{Path: "/etc/resolv.conf", Missing: true}),
		[]string{"error dns-server-missing w1"},
		"has no /etc/resolv.conf",
	},
	{
		"no DNS server", "CoreDNS does not start", resolver(op.Resolver{Path: "/etc/resolv.conf"}),
		[]string{"error dns-server-missing w1"},
		"has no DNS server",
	},
	{"no DNS server, upstream written", "CoreDNS uses the configured server", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		c.Spec.DNS.Upstream = []string{"192.0.2.53"}
		resolver(op.Resolver{Path: "/etc/resolv.conf"})(c, h, o)
	}, nil, ""},
	{
		"a DNS server on loopback", "CoreDNS would send requests to itself",
		resolver(op.Resolver{Path: "/etc/resolv.conf", Servers: []string{"192.0.2.53", "127.0.0.1"}}),
		[]string{"error dns-server-missing w1"},
		"would query itself",
	},
	{
		"DNS servers", "pods can use them",
		resolver(op.Resolver{Path: "/etc/resolv.conf", Servers: []string{"192.0.2.53", "2001:db8::53"}}), nil, "",
	},
	{"the kubelet has another file", "the user has decided", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		c.Spec.Kubernetes.Kubelet.Config = kubelet{"resolvConf": "/etc/pods.conf"}
		resolver(op.Resolver{Path: "/etc/resolv.conf", Missing: true})(c, h, o)
	}, nil, ""},
	{"no DNS server on a running node", "the node works without it", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		h[1].Facts.Ledger, h[1].Facts.Cluster = true, "prod"
		resolver(op.Resolver{Path: "/etc/resolv.conf"})(c, h, o)
	}, []string{"warning dns-server-missing w1"}, ""},

	{
		"same machine", "one machine has two names", func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) {
			h[1].Facts = h[0].Facts
			h[1].Spec.Address = "192.0.2.11"
		},
		[]string{"error same-machine w1"},
		"is the same machine as cp1",
	},
	{
		"cloned machine", "two machines have one identity",
		func(_ *v1alpha1.Cluster, h []facts.Host, _ *Options) { h[1].Facts.MachineID = h[0].Facts.MachineID },
		[]string{"error machine-id-duplicate w1"},
		"systemd-machine-id-setup",
	},

	{"clock 6 s off", "the difference is below the accuracy", skew(0, 6*time.Second), nil, ""},
	{"clock 7 s off", "the difference is above the accuracy", skew(0, 7*time.Second), []string{"error clock-skew w1"}, "7s ahead of"},
	{"clock behind", "the direction does not matter", skew(0, -7*time.Second), []string{"error clock-skew cp1"}, "7s ahead of"},
	{"all clocks a minute off", "only this machine differs", skew(time.Minute, time.Minute), nil, ""},
	{
		"all clocks off", "the clock of this machine is wrong", skew(-2*time.Minute, -2*time.Minute),
		[]string{"warning clock-manager "},
		"2m0s behind the clock of this machine",
	},
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
