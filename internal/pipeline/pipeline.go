// Package pipeline is the lifecycle operations: ordered lists of modules, and
// nothing else.
package pipeline

import (
	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/content"
	"slipway.dev/slipway/internal/module/dns"
	"slipway.dev/slipway/internal/module/endpoint"
	"slipway.dev/slipway/internal/module/etcd"
	"slipway.dev/slipway/internal/module/hooks"
	"slipway.dev/slipway/internal/module/kubeadm"
	"slipway.dev/slipway/internal/module/leave"
	"slipway.dev/slipway/internal/module/network"
	"slipway.dev/slipway/internal/module/nodes"
	"slipway.dev/slipway/internal/module/os"
	"slipway.dev/slipway/internal/module/record"
	"slipway.dev/slipway/internal/module/reset"
	"slipway.dev/slipway/internal/module/runtime"
)

// Parts are what pipelines need besides the cluster.
type Parts struct {
	Bundle  content.Source
	Records record.Records
	// Owner is who looks after the cluster: this manager.
	Owner string
}

// Create makes a cluster.
func Create(env module.Env, p Parts) engine.Pipeline {
	m := []engine.Module{hooks.New(env, v1alpha1.HookPreInstall)}
	m = append(m, upToControlPlane(env, p)...)
	m = append(m, hooks.New(env, v1alpha1.HookPostControlPlane), kubeadm.MakeRoom(env))
	m = append(m, fromControlPlane(env, p)...)
	m = append(m, hooks.New(env, v1alpha1.HookPostInstall))
	return engine.Pipeline{Kind: "create", Modules: m}
}

// Apply makes a cluster that exists as its description says.
// Hosts that its description has not any more are taken off it, when those
// that are new in it can take their pods.
func Apply(env module.Env, p Parts) engine.Pipeline {
	m := append(upToControlPlane(env, p), kubeadm.MakeRoom(env), leave.Replaced(env))
	m = only(env.Stays, append(append(m, fromControlPlane(env, p)...), endpoint.Retire(env)))
	if len(env.Leaving) > 0 {
		m = append(m, endpoint.Release(env), leave.Drain(env), leave.Server(env), leave.Member(env))
		m = append(m, only(env.Resets, []engine.Module{reset.New(env, "leave.member")})...)
		m = append(m, leave.Node(env), record.Left(env, p.Records, p.Owner))
	}
	return engine.Pipeline{Kind: "apply", Modules: m}
}

// only keeps the tasks of modules to the hosts that are chosen.
func only(chosen func(*engine.Host) bool, modules []engine.Module) []engine.Module {
	for _, m := range modules {
		for i := range m.Tasks {
			on := m.Tasks[i].On
			m.Tasks[i].On = func(h *engine.Host) bool { return chosen(h) && (on == nil || on(h)) }
		}
	}
	return modules
}

func upToControlPlane(env module.Env, p Parts) []engine.Module {
	return []engine.Module{
		content.New(p.Bundle),
		os.New(env),
		runtime.New(env),
		kubeadm.Install(env),
		etcd.New(env),
		runtime.Images(env),
		etcd.Reach(env),
		kubeadm.Init(env),
	}
}

func fromControlPlane(env module.Env, p Parts) []engine.Module {
	return []engine.Module{
		record.New(env, kubeadm.KeyAdminConf, p.Records, p.Owner),
		endpoint.New(env),
		kubeadm.Join(env),
		kubeadm.Kubelet(env),
		dns.New(env),
		network.New(env),
		nodes.New(env),
	}
}

// InitOS prepares hosts and installs nothing.
func InitOS(env module.Env) engine.Pipeline {
	return engine.Pipeline{Kind: "init-os", Modules: []engine.Module{os.New(env)}}
}

// Delete takes a cluster off its hosts and puts them back as they were.
func Delete(env module.Env) engine.Pipeline {
	return engine.Pipeline{Kind: "delete", Modules: []engine.Module{
		hooks.New(env, v1alpha1.HookPreDelete),
		reset.New(env),
	}}
}

// EndJoin takes back what lets nodes join, after an operation that did not
// come to its end.
func EndJoin(env module.Env) engine.Pipeline {
	return engine.Pipeline{Kind: "end-join", Modules: []engine.Module{kubeadm.EndJoin(env)}}
}
