package kubeadm

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// Upgrade is the module that has a node's parts of Kubernetes be those of its
// programs, which are installed by then: on control planes what serves the
// cluster, with a health gate, and on the one that speaks for it the settings
// that are on record; on all nodes the kubelet's. The kubelet comes after it:
// it is never newer than the API server that it asks.
func Upgrade(env module.Env) engine.Module {
	m := Serve(env)
	m.Tasks = append(append(m.Tasks, Settings(env).Tasks...), KubeletSettings(env).Tasks...)
	return m
}

// Serve is the module that has what serves the cluster be that of a control
// plane's programs.
func Serve(env module.Env) engine.Module {
	return engine.Module{Name: "upgrade", Tasks: []engine.Task{
		configTask(env),
		servingTask(env, "kubeadm.init.serving", env.Begins),
		servingTask(env, "join.serving", env.JoinsAsControlPlane),
		{
			ID: "upgrade.control-plane", Title: "exchange the control plane", On: engine.Role(v1alpha1.RoleControlPlane), Timeout: 12 * time.Minute,
			Ops: func(*engine.Scope) (op.List, error) {
				return append(op.List{components().exec()}, componentsServe(env, steadyTime)...), nil
			},
		},
	}}
}

// Settings is the module that puts the settings of all on record.
func Settings(env module.Env) engine.Module {
	return engine.Module{Name: "upgrade", Tasks: []engine.Task{only(env, "upload-config")}}
}

// KubeletSettings is the module that has kubelets go by what is on record, as
// their host's kubeadm reads it.
func KubeletSettings(env module.Env) engine.Module {
	const id = "upgrade.kubelet-config"
	return engine.Module{Name: "upgrade", Tasks: []engine.Task{{
		ID: id, Title: "update the kubelet's settings", On: module.IsNode,
		When: func(s *engine.Scope) bool { return env.Upgrade.Takes(id, s.Host()) },
		Ops: func(*engine.Scope) (op.List, error) {
			return op.List{op.Exec{
				Name: "kubeadm-upgrade-kubelet-config", Argv: []string{program, "upgrade", "node", "phase", "kubelet-config"},
				Inputs: []string{programs + "/kube"}, Declares: append(keptOfKubelet(), "/etc/kubernetes/tmp"),
				Keeps: keptOfKubelet(), Whole: true, TimeoutSeconds: 120,
			}}, nil
		},
	}}}
}

// settleTime is how long after its start a kubelet may end pods of its host that
// the one before has started: it looks after them within seconds.
const settleTime = 20 * time.Second

// Steady is the module that waits until a control plane serves whose kubelet was
// exchanged: it may have started all of it anew.
func Steady(env module.Env) engine.Module {
	return engine.Module{Name: "upgrade", Tasks: []engine.Task{{
		ID: "upgrade.steady", Title: "wait until the control plane is steady", On: engine.Role(v1alpha1.RoleControlPlane), Timeout: 8 * time.Minute,
		Ops: func(*engine.Scope) (op.List, error) {
			api := ownAPI(env)
			api.Since, api.SinceSeconds = "kubelet.service", int(settleTime.Seconds())
			return append(op.List{api}, componentsServe(env, 0)...), nil
		},
	}}}
}

// Again is the module that waits until a control plane serves whose containers have
// all been started anew, by whatever runs them now.
func Again(env module.Env) engine.Module {
	return engine.Module{Name: "serve", Tasks: []engine.Task{{
		ID: "runtime.serving", Title: "wait until the control plane serves", On: engine.Role(v1alpha1.RoleControlPlane), Timeout: 8 * time.Minute,
		Ops: func(s *engine.Scope) (op.List, error) {
			var waits op.List
			if hasMember(env, s.Host()) {
				// Ready is a member that answers a linearizable read: one that has
				// caught up.
				waits = op.List{op.Wait{HTTP: env.OwnMemberReady(), Manifest: manifest("etcd"), TimeoutSeconds: 300}}
			}
			return slices.Concat(waits, op.List{ownAPI(env)}, componentsHealthy(env, 0)), nil
		},
	}}}
}

// UpgradeEtcd is the module that upgrades members of etcd in pods: one at a time,
// each when the one before it has caught up.
func UpgradeEtcd(env module.Env) engine.Module {
	const id = "upgrade.etcd"
	return engine.Module{Name: "etcd", Tasks: []engine.Task{mendTask(env), {
		ID: id, Title: "exchange etcd", Needs: []string{stepMend}, Timeout: 8 * time.Minute,
		On: func(h *engine.Host) bool { return env.Stacked() && h.HasRole(v1alpha1.RoleControlPlane) },
		// Where the cluster began it is as with any change of the settings.
		When:    func(s *engine.Scope) bool { return env.Upgrade.Takes(id, s.Host()) || env.Begins(s.Host()) },
		Rollout: engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"},
		Ops: func(s *engine.Scope) (op.List, error) {
			e := localEtcd().exec()
			if !env.Begins(s.Host()) { // where the cluster began it is the same step as then
				e.Name, e.Creates, e.Declares = "kubeadm-upgrade-etcd", nil, []string{manifest("etcd")}
			}
			e = amongWell(env, e)
			e.Then.TimeoutSeconds = 300 // another image is started
			return op.List{
				e,
				runs(env, "etcd"),
				// Ready is a member that answers a linearizable read: one that
				// has caught up.
				op.Wait{HTTP: env.OwnMemberReady(), Manifest: manifest("etcd"), TimeoutSeconds: 300},
				// One that has lost its member may take more than a minute to
				// find it again.
				op.PodRestart{Manifest: module.APIServerManifest, Files: []string{manifest("etcd")}, TimeoutSeconds: 300},
				ownAPI(env),
			}, nil
		},
	}}}
}

// keyRights is that nodes have the rights of this release.
var keyRights = engine.NewKey("upgrade.rights", false)

// UpgradeAddons is the module that upgrades what kubeadm runs in the cluster, and the
// rights that nodes have to join.
func UpgradeAddons(env module.Env) engine.Module {
	e := initPhase(env, "bootstrap-token").exec()
	e.Name, e.Inputs = "kubeadm-upgrade-rights", []string{ConfigFile} // with each release
	tokens := endTokens(env, func(s *engine.Scope) bool { return !engine.Known(s, keyRights) }, "upgrade.rights")
	tokens.Consumes = append(tokens.Consumes, keyRights.Ref())
	return engine.Module{Name: "control-plane", Tasks: []engine.Task{
		{
			ID: "upgrade.rights", Title: "renew the rights of nodes", On: env.IsFirst,
			Provides: []engine.KeyRef{keyRights.Ref()},
			Ops:      func(*engine.Scope) (op.List, error) { return op.List{e}, nil },
			After: func(_ context.Context, s *engine.Scope, _ []op.Result) error {
				engine.Provide(s, keyRights, true)
				return nil
			},
		},
		tokens, // of which the phase makes one
		only(env, "mark-control-plane"), only(env, "addon-dns"), only(env, "addon-proxy"),
	}}
}

// only is the task of one of the phases by which a cluster begins.
func only(env module.Env, id string) engine.Task { return initPhase(env, id).task(env) }

// runs waits for a control plane's container in its version of this release.
func runs(env module.Env, name string) op.Wait {
	return op.Wait{Container: name, Image: env.Release.ImageRefs()[name], TimeoutSeconds: 300}
}

// componentsServe waits for all parts of a control plane, in their versions of
// this release, to be healthy, and to have run for a time.
func componentsServe(env module.Env, steady time.Duration) op.List {
	return slices.Concat(
		op.List{runs(env, "kube-apiserver"), ownAPI(env), runs(env, "kube-controller-manager"), runs(env, "kube-scheduler")},
		componentsHealthy(env, steady),
	)
}

// What a component that has just been started must have run for to count as
// healthy. It ends at once with a flag that it does not know, and with some other
// settings when it becomes the leader: at the latest when the lease of the one
// before it has run out, after 15 s.
const (
	steadyTime  = 20 * time.Second
	createdTime = 5 * time.Second // nobody had the lease before
)

// componentsHealthy waits for the controller manager and the scheduler to be
// healthy with their settings, and to have run for a time. One that ends again and
// again is waited for no longer, and the error has its last words.
func componentsHealthy(env module.Env, steady time.Duration) (out op.List) {
	k := env.Cluster.Spec.Kubernetes
	for _, w := range []op.Wait{
		healthy("kube-controller-manager", 10257, k.ControllerManager.ExtraArgs),
		healthy("kube-scheduler", 10259, k.Scheduler.ExtraArgs),
	} {
		w.Crashes, w.SteadySeconds = mostCrashes, int(steady.Seconds())
		out = append(out, w)
	}
	return out
}

// newComponents is componentsHealthy after their settings may have changed.
func newComponents(env module.Env) op.List {
	if env.Reconfigures {
		return componentsHealthy(env, steadyTime)
	}
	return componentsHealthy(env, createdTime)
}

// healthy waits for a component at its own port, which the user may have moved or
// closed.
func healthy(component string, port int, args map[string]string) op.Wait {
	host := args["bind-address"]
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	w := op.Wait{Manifest: manifest(component), TimeoutSeconds: 120}
	if args["secure-port"] == "0" {
		w.Name, w.Program = "program of "+component, []string{"/usr/bin/test", "-e", w.Manifest}
		return w
	}
	w.HTTP = "https://" + net.JoinHostPort(host, cmp.Or(args["secure-port"], fmt.Sprint(port))) + "/healthz"
	return w
}
