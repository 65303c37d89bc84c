// Package reset takes a cluster off its hosts and puts them back as they
// were.
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

// New is the module. What the ledger of a host does not know as ours stays. It
// waits for the tasks that are named.
func New(env module.Env, after ...string) engine.Module {
	return engine.Module{Name: "reset", Tasks: []engine.Task{
		{
			ID: "reset.kubernetes", Title: "take Kubernetes off", Timeout: 5 * time.Minute, Needs: after,
			Ops:   func(s *engine.Scope) (op.List, error) { return op.List{runtimeState(env, s.Host())}, nil },
			After: tellLeft,
		},
		{
			ID: "reset.restore", Title: "put the host back as it was", Timeout: 5 * time.Minute,
			Ops: func(s *engine.Scope) (op.List, error) {
				return op.List{op.Restore{EndLock: env.Resets(s.Host())}}, nil
			},
			After: tellLeft,
		},
	}}
}

// tellLeft tells what stays on a host, and why: nobody else looks after it
// from now on.
func tellLeft(_ context.Context, s *engine.Scope, results []op.Result) error {
	for _, line := range left(results) {
		s.Note("%s", line)
	}
	return nil
}

// left are the lines of a report about what was not put back.
func left(results []op.Result) []string {
	var out []string
	for _, res := range results {
		for line := range strings.Lines(string(res.Output)) {
			if what, why, ok := strings.Cut(strings.TrimSpace(line), ": left: "); ok {
				out = append(out, what+" is left: "+why)
			}
		}
	}
	return out
}

// Runtime is the module that takes off a node the runtime by which its containers
// are run no longer: they end, with all that it keeps of them.
func Runtime(env module.Env) engine.Module {
	return engine.Module{Name: "reset", Tasks: []engine.Task{{
		ID: "reset.runtime", Title: "end what the runtime before runs", Timeout: 8 * time.Minute, On: env.Moves,
		Ops: func(s *engine.Scope) (op.List, error) {
			r := formerRuntime(env)
			if env.Stacked() && s.Host().HasRole(v1alpha1.RoleControlPlane) { // its member of etcd ends, too
				r.Serves, r.Gate = env.AskMember("health"), env.EveryMember()
			}
			return op.List{r}, nil
		},
		After: tellLeft,
	}}}
}

// formerRuntime is what the runtime that a node moves from has made. containerd
// goes in both directions: what it keeps is of one of them alone.
func formerRuntime(env module.Env) op.Reset {
	from := runtimeOf(!env.Docker())
	r := from.reset(env)
	r.Within, r.Mounts, r.Paths = from.own(), from.dirs, from.dirs
	return r
}

// A containers is what runs them on a node.
type containers struct {
	units     []string // in the order in which they are stopped
	dirs      []string // of its own
	sandboxes string
}

// runtimeOf is Docker over containerd, or that alone.
func runtimeOf(docker bool) containers {
	c := containers{
		units:     []string{"kubelet.service", "containerd.service"},
		dirs:      []string{"/run/containerd", facts.DirContainerd},
		sandboxes: facts.DirContainerd + "/io.containerd.grpc.v1.cri/sandboxes",
	}
	if docker { // its containers outlive it, and are ended before containerd is
		c.units = []string{"kubelet.service", "cri-docker.service", "docker.service", "containerd.service"}
		c.dirs = append(c.dirs, facts.DirDocker, facts.DirAdapter, "/run/docker", "/run/docker.sock", "/run/docker.pid", "/run/cri-dockerd.sock")
		c.sandboxes = facts.DirAdapter + "/sandbox"
	}
	return c
}

// own are the cgroups of its units.
func (c containers) own() (out []string) {
	for _, unit := range c.units {
		out = append(out, "system.slice/"+unit)
	}
	return out
}

// reset ends all containers, and takes back what CNI has given to them.
func (c containers) reset(env module.Env) op.Reset {
	r := op.Reset{
		Units:         slices.Clone(c.units),
		TellFirst:     []string{"keepalived", "kube-vip"}, // of whatever mode there was: they hold addresses
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

// runtimeState is what kubelet, kube-proxy, containerd, flannel and etcd make
// by themselves while they run.
func runtimeState(env module.Env, h *engine.Host) op.Op {
	runtime := runtimeOf(module.HasDocker(h))
	r := runtime.reset(env)
	// The units' own stay behind in v1 hierarchies: they are delegated to them, and
	// systemd leaves what it has delegated.
	r.Cgroups = append(r.Cgroups, runtime.own()...)
	if env.RunsEtcd(h) { // elsewhere it is another's
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
