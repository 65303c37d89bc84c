// Package os prepares hosts: name, hosts file, kernel, swap, time.
package os

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
)

const stepHosts, stepKernel, stepTime = "os.hosts", "os.kernel", "os.time"

// New is the module. What it changes of a cluster's hosts restarts nothing, and is
// to leave all that they serve.
func New(env module.Env) engine.Module {
	serving := func(h *engine.Host, step string, list ...op.Op) op.List {
		return append(list, env.Serving(h, step, step == stepKernel)...)
	}
	tasks := []engine.Task{
		{ID: "os.hostname", Title: "set the host name", Ops: func(s *engine.Scope) (op.List, error) {
			return op.List{op.Hostname{Name: s.Host().Name}}, nil
		}},
		{ID: stepHosts, Title: "write the hosts file", Ops: func(s *engine.Scope) (op.List, error) {
			return serving(s.Host(), stepHosts, op.Block{Path: "/etc/hosts", Name: env.Cluster.Name, Lines: hostsLines(env, s.Host())}), nil
		}},
	}
	if !env.Cluster.Spec.System.SkipConfigure {
		tasks = append(tasks,
			engine.Task{ID: stepKernel, Title: "set up the kernel", On: module.IsNode, Ops: func(s *engine.Scope) (op.List, error) {
				return serving(s.Host(), stepKernel, kernel(env, s.Host())...), nil
			}},
			engine.Task{ID: "os.swap", Title: "turn swap off", On: module.IsNode, Ops: func(*engine.Scope) (op.List, error) {
				if spec.ToleratesSwap(env.Cluster) {
					return nil, nil // it is wanted
				}
				return op.List{op.SwapOff{}}, nil
			}},
			engine.Task{ID: stepTime, Title: "set up time", Ops: func(s *engine.Scope) (op.List, error) {
				return serving(s.Host(), stepTime, clock(env, s.Host())...), nil
			}},
		)
	}
	return engine.Module{Name: "os", Tasks: tasks}
}

// hostsLines are one line per address: the host itself, the API's name, and
// what the user adds. Nodes know each other by address: a host more or less in
// the cluster is no reason to touch the others. What the API's name stands for
// on a worker may change; module endpoint writes it when it is there.
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

// kernel is what kubelet, kube-proxy and flannel need of it, and limits that
// a busy node runs into.
func kernel(env module.Env, h *engine.Host) op.List {
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
		// A pod that reaches itself or its neighbour through a Service
		// crosses the bridge, and must pass the packet filter there.
		values["net.bridge.bridge-nf-call-iptables"] = "1"
	}
	if env.Cluster.Spec.Kubernetes.ProxyMode == "iptables" {
		values["net.ipv4.conf.all.route_localnet"] = "1" // kube-proxy's, for node ports on localhost
	}
	for key, value := range env.Cluster.Spec.System.Sysctls {
		values[spec.SysctlName(key)] = value
	}
	return op.List{
		op.KernelModules{File: "/etc/modules-load.d/slipway.conf", Modules: []string{"overlay", "br_netfilter"}},
		op.Sysctl{File: "/etc/sysctl.d/90-slipway.conf", Values: values},
		op.PutBack{Step: stepKernel},
	}
}

func isIPv6(cidr string) bool { return strings.Contains(cidr, ":") }

// clock sets time zone and time servers. A host that is one of the servers does not
// follow itself.
func clock(env module.Env, self *engine.Host) op.List {
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
	return append(ops, op.PutBack{Step: stepTime})
}
