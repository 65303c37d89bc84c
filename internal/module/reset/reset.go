// Package reset removes a cluster from its hosts and restores the hosts.
package reset

import (
	"context"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

// CleanHosts is the module that removes Kubernetes and restores hosts. It changes only
// what the ledger of a host lists as created by Slipway. It waits for the given tasks.
func CleanHosts(env module.Env, after ...string) engine.Module {
	return engine.Module{Name: "reset", Tasks: []engine.Task{
		{
			ID: "reset.kubernetes", Title: "remove Kubernetes", Timeout: 5 * time.Minute, Needs: after,
			Ops:   func(s *engine.Scope) (op.List, error) { return op.List{runtimeState(env, s.Host())}, nil },
			After: reportLeft,
		},
		{
			ID: "reset.restore", Title: "restore host", Timeout: 5 * time.Minute,
			Ops: func(s *engine.Scope) (op.List, error) {
				return op.List{op.RestoreHost{EndLock: env.IsReset(s.Host())}}, nil
			},
			After: reportLeft,
		},
	}}
}

// reportLeft reports what remains on a host, and why: nothing manages it from now on.
func reportLeft(_ context.Context, s *engine.Scope, results []op.Result) error {
	for _, line := range leftLines(results) {
		s.ShowNote("%s", line)
	}
	return nil
}

// leftLines returns the lines of a report about objects that were not restored.
func leftLines(results []op.Result) []string {
	var out []string
	for _, res := range results {
		for line := range strings.Lines(string(res.Output)) {
			if what, why, ok := strings.Cut(strings.TrimSpace(line), ": left: "); ok {
				out = append(out, what+": left on the host: "+why)
			}
		}
	}
	return out
}

// RemoveRuntime is the module that removes the previous container runtime from a node: its
// containers stop, and their data is deleted.
func RemoveRuntime(env module.Env) engine.Module {
	return engine.Module{Name: "reset", Tasks: []engine.Task{{
		ID: "reset.runtime", Title: "stop containers of previous runtime", Timeout: 8 * time.Minute, On: env.ChangesRuntime,
		Ops: func(s *engine.Scope) (op.List, error) {
			r := formerRuntime(env)
			if env.HasStackedEtcd() && s.Host().HasRole(v1alpha1.RoleControlPlane) { // its etcd member stops, too
				r.Serves, r.Gate = env.WaitLocalMember("health"), env.WaitAllMembersHealthy()
			}
			return op.List{r}, nil
		},
		After: reportLeft,
	}}}
}

// formerRuntime returns the reset of the runtime that a node changes from. containerd is
// removed in both directions, because its data belongs to only one of the two runtimes.
func formerRuntime(env module.Env) op.Reset {
	from := runtimeOf(!env.UsesDocker())
	r := from.resetOp(env)
	r.Within, r.Mounts, r.Paths = from.ownCgroups(), from.dirs, from.dirs
	return r
}

// A containers describes a container runtime on a node.
type containers struct {
	units     []string // in the order in which they are stopped
	dirs      []string // its own directories
	sandboxes string
}

// runtimeOf returns the description of Docker with containerd, or of containerd alone.
func runtimeOf(docker bool) containers {
	c := containers{
		units:     []string{"kubelet.service", "containerd.service"},
		dirs:      []string{"/run/containerd", facts.DirContainerd},
		sandboxes: facts.DirContainerd + "/io.containerd.grpc.v1.cri/sandboxes",
	}
	if docker { // its containers continue without it, and are stopped before containerd
		c.units = []string{"kubelet.service", "cri-docker.service", "docker.service", "containerd.service"}
		c.dirs = append(c.dirs, facts.DirDocker, facts.DirAdapter, "/run/docker", "/run/docker.sock", "/run/docker.pid", "/run/cri-dockerd.sock")
		c.sandboxes = facts.DirAdapter + "/sandbox"
	}
	return c
}

// ownCgroups returns the cgroups of its units.
func (c containers) ownCgroups() (out []string) {
	for _, unit := range c.units {
		out = append(out, "system.slice/"+unit)
	}
	return out
}

// resetOp stops all containers, and removes their CNI networks.
func (c containers) resetOp(env module.Env) op.Reset {
	r := op.Reset{
		Units:         slices.Clone(c.units),
		TellFirst:     []string{"keepalived", "kube-vip"}, // of any endpoint mode: they hold addresses
		CNI:           "/var/lib/cni",
		Sandboxes:     c.sandboxes,
		Cgroups:       []string{"kubepods.slice", "kubepods"},
		KeepUnmanaged: true,
	}
	if env.Cluster.Spec.Network.Plugin == "flannel" {
		r.Networks = []string{"cbr0"}
	}
	if ep := env.Cluster.Spec.ControlPlaneEndpoint; spec.BringsAddress(ep.Mode) {
		r.Addresses = []string{ep.Address}
	}
	return r
}

// runtimeState removes what kubelet, kube-proxy, containerd, flannel and etcd create while
// they run.
func runtimeState(env module.Env, h *engine.Host) op.Op {
	runtime := runtimeOf(module.HasDocker(h))
	r := runtime.resetOp(env)
	// In cgroup v1 hierarchies the cgroups of the units remain: they are delegated to the
	// units, and systemd does not remove delegated cgroups.
	r.Cgroups = append(r.Cgroups, runtime.ownCgroups()...)
	if env.RunsEtcd(h) { // on other hosts it belongs to others
		r.Units = append(r.Units, "etcd.service")
	}
	if h.HasRole(v1alpha1.RoleRegistry) {
		r.Units = append(r.Units, module.RegistryUnit)
	}
	r.Mounts = append([]string{facts.DirKubelet}, runtime.dirs...)
	r.Links = []string{"cni0", "flannel.1", "flannel-v6.1", "kube-ipvs0", "nodelocaldns"}
	r.NFTables = []string{"ip kube-proxy", "ip6 kube-proxy", "ip flannel-ipv4", "ip6 flannel-ipv6"}
	r.IPTables = []string{"KUBE-", "FLANNEL-"}
	r.Paths = append([]string{
		facts.DirKubelet, facts.DirEtcd, "/var/lib/cni/flannel",
		"/run/nri", "/run/flannel", "/run/kubernetes", "/run/xtables.lock",
		"/var/log/pods", "/var/log/containers", "/opt/containerd",
	}, runtime.dirs...)
	return r
}
