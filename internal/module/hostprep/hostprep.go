// Package hostprep prepares hosts: name, hosts file, kernel, swap, time.
package hostprep

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/limits"
)

const stepHosts, stepKernel, stepTime = "os.hosts", "os.kernel", "os.time"

// PrepareHosts is the module that prepares the operating system. Its changes on hosts
// of a cluster restart nothing, and must not interrupt anything that they serve.
func PrepareHosts(env module.Env) engine.Module {
	serving := func(h *engine.Host, step string, list ...op.Op) op.List {
		return append(list, env.VerifyServing(h, step, step == stepKernel)...)
	}
	tasks := []engine.Task{
		{ID: "os.hostname", Title: "set host name", Ops: func(s *engine.Scope) (op.List, error) {
			return op.List{op.Hostname{Name: s.Host().Name}}, nil
		}},
		{ID: stepHosts, Title: "write hosts file", Ops: func(s *engine.Scope) (op.List, error) {
			return serving(s.Host(), stepHosts, op.Block{Path: "/etc/hosts", Name: env.Cluster.Name, Lines: hostsLines(env, s.Host())}), nil
		}},
	}
	if !env.Cluster.Spec.System.SkipConfigure {
		tasks = append(tasks,
			engine.Task{ID: stepKernel, Title: "configure kernel", On: module.IsNode, Ops: func(s *engine.Scope) (op.List, error) {
				return serving(s.Host(), stepKernel, kernelOps(env, s.Host())...), nil
			}},
			engine.Task{ID: "os.swap", Title: "turn off swap", On: module.IsNode, Ops: func(*engine.Scope) (op.List, error) {
				if spec.ToleratesSwap(env.Cluster) {
					return nil, nil // the user wants swap
				}
				return op.List{op.SwapOff{}}, nil
			}},
			engine.Task{ID: stepTime, Title: "configure time synchronization", Ops: func(s *engine.Scope) (op.List, error) {
				return serving(s.Host(), stepTime, clockOps(env, s.Host())...), nil
			}},
		)
	}
	return engine.Module{Name: "os", Tasks: tasks}
}

// hostsLines returns one line per address: the host itself, the API name, and the entries
// of the user. Nodes reach each other by address, so adding or removing a host does not
// change other hosts. The address of the API name on a worker can change; module endpoint
// writes it.
func hostsLines(env module.Env, self *engine.Host) []string {
	names := map[string][]string{}
	var order []string
	add := func(address string, more ...string) {
		if _, ok := names[address]; !ok {
			order = append(order, address)
		}
		names[address] = append(names[address], more...)
	}
	add(module.InternalAddress(self.Host), self.Name)
	if self.HasRole(v1alpha1.RoleControlPlane) {
		add(spec.EndpointAddress(env.Cluster, self.Host), env.Cluster.Spec.ControlPlaneEndpoint.Domain)
	}
	if h, ok := spec.RegistryHost(env.Cluster); ok && len(env.Cluster.Spec.Registry.Private.Names) > 0 {
		add(module.InternalAddress(h), env.Cluster.Spec.Registry.Private.Names...)
	}
	for _, a := range slices.Sorted(maps.Keys(env.Cluster.Spec.DNS.Hosts)) {
		add(a, env.Cluster.Spec.DNS.Hosts[a]...)
	}
	lines := make([]string, len(order))
	for i, a := range order {
		lines[i] = fmt.Sprintf("%s %s", a, strings.Join(names[a], " "))
	}
	return lines
}

// kernelOps returns the kernel settings that kubelet, kube-proxy and flannel need, settings
// for busy nodes, and the limits of the user.
func kernelOps(env module.Env, h *engine.Host) op.List {
	values := map[string]string{
		"net.ipv4.ip_forward":           "1",
		"vm.overcommit_memory":          "1", // the kubelet's protectKernelDefaults
		"vm.panic_on_oom":               "0",
		"kernel.panic":                  "10",
		"kernel.panic_on_oops":          "1",
		"vm.max_map_count":              "262144",
		"fs.inotify.max_user_instances": "8192",
		"fs.inotify.max_user_watches":   "524288",
	}
	if slices.ContainsFunc(env.Cluster.Spec.Network.PodCIDR, isIPv6) {
		values["net.ipv6.conf.all.forwarding"] = "1"
	}
	if h.Facts == nil || slices.Contains(h.Facts.KernelFeatures, "br_netfilter") {
		// A packet of a pod to itself or its neighbour through a Service crosses the
		// bridge, and must pass the packet filter there.
		values["net.bridge.bridge-nf-call-iptables"] = "1"
	}
	if env.Cluster.Spec.Kubernetes.ProxyMode == "iptables" {
		values["net.ipv4.conf.all.route_localnet"] = "1" // kube-proxy's, for node ports on localhost
	}
	for key, value := range env.Cluster.Spec.System.Sysctls {
		values[spec.SysctlName(key)] = value
	}
	ops := op.List{
		op.KernelModules{File: "/etc/modules-load.d/slipway.conf", Modules: []string{"overlay", "br_netfilter"}},
		op.Sysctl{File: "/etc/sysctl.d/90-slipway.conf", Values: values},
	}
	if list := limitList(env.Cluster); len(list) > 0 {
		ops = append(ops, op.Limits{
			File: "/etc/security/limits.d/90-slipway.conf", Limits: list, OpenFilesMax: spec.OpenFilesMax(env.Cluster),
		})
	}
	return append(ops, op.RevertStep{Step: stepKernel})
}

func limitList(c *v1alpha1.Cluster) []op.Limit {
	var out []op.Limit
	for _, item := range slices.Sorted(maps.Keys(c.Spec.System.Limits)) {
		soft, hard := limits.Split(c.Spec.System.Limits[item])
		out = append(out, op.Limit{Item: item, Soft: soft, Hard: hard})
	}
	return out
}

func isIPv6(cidr string) bool { return strings.Contains(cidr, ":") }

// clockOps sets the time zone and the time servers. A host that is a time server does not
// follow itself.
func clockOps(env module.Env, self *engine.Host) op.List {
	var ops op.List
	if tz := env.Cluster.Spec.System.Timezone; tz != "" {
		ops = append(ops, op.Timezone{Name: tz})
	}
	var ntp []string
	for _, server := range env.Cluster.Spec.System.NTPServers {
		if h, ok := spec.HostCalled(env.Cluster, server); !ok || h.Name != self.Name {
			ntp = append(ntp, server)
		}
	}
	if len(ntp) > 0 {
		ops = append(ops, op.TimeSync{Servers: ntp})
	}
	return append(ops, op.RevertStep{Step: stepTime})
}
