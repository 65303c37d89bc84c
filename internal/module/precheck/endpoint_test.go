package precheck

import (
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

const virtual = "192.0.2.100"

// holding makes control planes hold an address. No host gets an answer there.
func holding(c *v1alpha1.Cluster, h []facts.Host) {
	c.Spec.ControlPlaneEndpoint.Mode, c.Spec.ControlPlaneEndpoint.Address = v1alpha1.EndpointKeepalived, virtual
	h[0].Facts.Unreached = facts.EndpointToCheck(c, h[0].Spec.Roles)
}

// balanced has an external load balancer that the worker cannot reach.
func balanced(c *v1alpha1.Cluster, h []facts.Host) {
	c.Spec.ControlPlaneEndpoint.Mode, c.Spec.ControlPlaneEndpoint.Address = v1alpha1.EndpointExternal, virtual
	h[1].Facts.Unreached = facts.EndpointToCheck(c, h[1].Spec.Roles)
}

var endpointRows = []row{
	{"unused address", "a control plane will hold it", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) { holding(c, h) }, nil, ""},
	{"address of another machine", "two machines would have it", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		holding(c, h)
		h[0].Facts.Unreached = h[0].Facts.Unreached[:1] // only SSH is reached
	}, []string{"error address-in-use cp1"}, "the API address 192.0.2.100 is already in use"},
	{"address on a host", "any healthy control plane must be able to hold it", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		holding(c, h)
		h[1].Facts.Addresses = append(h[1].Facts.Addresses, op.Address{Link: "eth0", Prefix: virtual + "/24"})
	}, []string{"error address-in-use w1"}, "has the address 192.0.2.100 on an interface"},
	{"address in use by the cluster", "a control plane of the cluster holds it", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		holding(c, h)
		o.Recorded = true
		h[0].Facts.Ledger, h[0].Facts.Cluster, h[0].Facts.Unreached = true, "prod", nil
		h[0].Facts.Present = append(h[0].Facts.Present, module.KeepalivedManifest)
		h[0].Facts.Addresses = append(h[0].Facts.Addresses, op.Address{Link: "eth0", Prefix: virtual + "/32"})
	}, nil, ""},
	{
		"unreachable load balancer", "a worker could not reach the API", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) { balanced(c, h) },
		[]string{"error endpoint-unreachable w1"},
		"cannot reach the load balancer at 192.0.2.100:6443",
	},
	{"load balancer unreachable from a node", "the operation may fix it", func(c *v1alpha1.Cluster, h []facts.Host, o *Options) {
		balanced(c, h)
		o.Recorded = true
		h[1].Facts.Ledger, h[1].Facts.Cluster = true, "prod"
	}, []string{"warning endpoint-unreachable w1"}, ""},
	{"reachable load balancer", "workers can reach the API", func(c *v1alpha1.Cluster, h []facts.Host, _ *Options) {
		balanced(c, h)
		h[1].Facts.Unreached = nil
	}, nil, ""},
	{
		"address of a Service on a node", "the relay has it, also during a change of the mode",
		func(_ *v1alpha1.Cluster, h []facts.Host, o *Options) {
			o.Recorded = true
			h[1].Facts.Ledger, h[1].Facts.Cluster = true, "prod"
			h[1].Facts.Addresses = append(slices.Clone(h[1].Facts.Addresses), op.Address{Link: "lo", Prefix: "10.96.0.2/32"})
		}, nil, "",
	},
}
