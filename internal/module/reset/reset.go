// Package reset takes a cluster off its hosts and puts them back as they
// were.
package reset

import (
	"context"
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

// runtimeState is what kubelet, kube-proxy, containerd, flannel and etcd make
// by themselves while they run.
func runtimeState(env module.Env, h *engine.Host) op.Op {
	units, docker := []string{"kubelet.service", "containerd.service"}, []string(nil)
	// The units' own stay behind in v1 hierarchies: they are delegated to them, and
	// systemd leaves what it has delegated.
	cgroups := []string{"kubepods.slice", "kubepods", "system.slice/containerd.service", "system.slice/kubelet.service"}
	sandboxes := facts.DirContainerd + "/io.containerd.grpc.v1.cri/sandboxes"
	if env.Docker() { // its containers outlive it, and are ended before containerd is
		sandboxes = "/var/lib/cri-dockerd/sandbox"
		units = []string{"kubelet.service", "cri-docker.service", "docker.service", "containerd.service"}
		cgroups = append(cgroups, "system.slice/docker.service", "system.slice/cri-docker.service")
		docker = []string{"/var/lib/docker", "/var/lib/cri-dockerd", "/run/docker", "/run/docker.sock", "/run/docker.pid", "/run/cri-dockerd.sock"}
	}
	if env.RunsEtcd(h) { // elsewhere it is another's
		units = append(units, "etcd.service")
	}
	if h.HasRole(v1alpha1.RoleRegistry) {
		units = append(units, module.RegistryUnit)
	}
	var networks []string
	if env.Cluster.Spec.Network.Plugin == "flannel" {
		networks = []string{"cbr0"}
	}
	var addresses []string
	if ep := env.Cluster.Spec.ControlPlaneEndpoint; spec.BringsAddress(ep.Mode) {
		addresses = []string{ep.Address}
	}
	return op.Reset{
		Units:     units,
		TellFirst: []string{"keepalived", "kube-vip"}, // of whatever mode there was: they hold addresses
		Addresses: addresses,
		Mounts:    append([]string{facts.DirKubelet, "/run/containerd", facts.DirContainerd}, docker...),
		Links:     []string{"cni0", "flannel.1", "flannel-v6.1", "kube-ipvs0", "nodelocaldns"},
		NFTables:  []string{"ip kube-proxy", "ip6 kube-proxy", "ip flannel-ipv4", "ip6 flannel-ipv6"},
		IPTables:  []string{"KUBE-", "FLANNEL-"},
		CNI:       "/var/lib/cni",
		Sandboxes: sandboxes,
		Networks:  networks,
		Cgroups:   cgroups,
		Paths: append([]string{
			facts.DirKubelet, facts.DirEtcd, facts.DirContainerd, "/var/lib/cni/flannel",
			"/run/containerd", "/run/nri", "/run/flannel", "/run/kubernetes", "/run/xtables.lock",
			"/var/log/pods", "/var/log/containers", "/opt/containerd",
		}, docker...),
		KeepUnmanaged: true,
	}
}
