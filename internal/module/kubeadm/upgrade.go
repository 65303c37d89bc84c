package kubeadm

import (
	"context"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// UpgradeNode is the module that brings the components of a node to the version of its
// programs, which are already installed: on control planes the components that serve the
// cluster, with a health gate, and on the leader the saved configuration; on all nodes the
// settings of the kubelet. The kubelet itself follows, because it must not be newer than
// its API server.
func UpgradeNode(env module.Env) engine.Module {
	m := UpgradeControlPlane(env)
	m.Tasks = append(append(m.Tasks, UploadConfig(env).Tasks...), UpdateKubeletSettings(env).Tasks...)
	return m
}

// UpgradeControlPlane is the module that brings the components of a control plane to
// the version of its programs.
func UpgradeControlPlane(env module.Env) engine.Module {
	return engine.Module{Name: "upgrade", Tasks: []engine.Task{
		configTask(env),
		servingTask(env, "kubeadm.init.serving", env.IsInitNode),
		servingTask(env, "join.serving", env.JoinsAsControlPlane),
		{
			ID: "upgrade.control-plane", Title: "replace control plane", On: engine.HasRole(v1alpha1.RoleControlPlane), Timeout: 12 * time.Minute,
			Ops: func(*engine.Scope) (op.List, error) {
				return append(op.List{componentsPhase().asExec()}, waitComponentsUpgraded(env, steadyTime)...), nil
			},
		},
	}}
}

// UploadConfig is the module that uploads the configuration of the cluster.
func UploadConfig(env module.Env) engine.Module {
	return engine.Module{Name: "upgrade", Tasks: []engine.Task{initPhaseTask(env, "upload-config")}}
}

// UpdateKubeletSettings is the module that makes kubelets use the saved configuration,
// as the kubeadm of their host reads it.
func UpdateKubeletSettings(env module.Env) engine.Module {
	const id = "upgrade.kubelet-config"
	return engine.Module{Name: "upgrade", Tasks: []engine.Task{{
		ID: id, Title: "update kubelet settings", On: module.IsNode,
		When: func(s *engine.Scope) bool { return env.Upgrade.RunsStep(id, s.Host()) },
		Ops: func(s *engine.Scope) (op.List, error) {
			return append(apiServerPod(s.Host()), op.Exec{
				Name: "kubeadm-upgrade-kubelet-config", Argv: []string{program, "upgrade", "node", "phase", "kubelet-config"},
				Inputs: []string{programs + "/kube"}, Declares: append(kubeletBaselineFiles(), "/etc/kubernetes/tmp"),
				Keeps: kubeletBaselineFiles(), Whole: true, TimeoutSeconds: 120,
			}), nil
		},
	}}}
}

// apiServerPod waits, on a control plane, until the pod of its API server is in the API.
// kubeadm reads the address of the API server from that pod, and stops waiting for it
// after a minute. The wait uses the kubeconfig that kubeadm uses, so any API server can
// answer. The kubelet creates the pod again after a change. If the API server does not
// serve at that moment, as on the only control plane, the kubelet tries again at its next
// synchronization, up to 90 seconds later.
func apiServerPod(h *engine.Host) op.List {
	if !h.HasRole(v1alpha1.RoleControlPlane) {
		return nil
	}
	pod := "kube-apiserver-" + h.Name
	return op.List{op.Wait{
		Name: "pod " + pod, TimeoutSeconds: 240, Program: module.KubectlCommand(adminConf, "get", "pod", pod, "--namespace="+kubeSystem),
	}}
}

// settleTime is how long after its start a kubelet may still stop pods that the previous
// one has started: it synchronizes them within seconds.
const settleTime = 20 * time.Second

// WaitStable is the module that waits until a control plane with a new kubelet serves: the
// kubelet may have restarted all components.
func WaitStable(env module.Env) engine.Module {
	return engine.Module{Name: "upgrade", Tasks: []engine.Task{{
		ID: "upgrade.steady", Title: "wait until control plane is stable", On: engine.HasRole(v1alpha1.RoleControlPlane),
		Timeout: 8 * time.Minute,
		Ops: func(*engine.Scope) (op.List, error) {
			api := waitLocalAPI(env)
			api.Since, api.SinceSeconds = "kubelet.service", int(settleTime.Seconds())
			return append(op.List{api}, waitComponentsUpgraded(env, 0)...), nil
		},
	}}}
}

// WaitControlPlaneRestarted is the module that waits until a control plane serves after
// all its containers were restarted, with any runtime.
func WaitControlPlaneRestarted(env module.Env) engine.Module {
	return engine.Module{Name: "serve", Tasks: []engine.Task{{
		ID: "runtime.serving", Title: "wait for control plane", On: engine.HasRole(v1alpha1.RoleControlPlane), Timeout: 25 * time.Minute,
		Ops: func(s *engine.Scope) (op.List, error) {
			var waits op.List
			if hasMember(env, s.Host()) {
				// A ready member serves a linearizable read, so it has caught up.
				waits = op.List{op.Wait{HTTP: env.LocalMemberReadyURL(), Manifest: manifestPath("etcd"), TimeoutSeconds: 300}}
			}
			return slices.Concat(waits, op.List{waitLocalAPI(env)}, env.ComponentsHealthy()), nil
		},
	}}}
}

// UpgradeEtcd is the module that upgrades etcd members in pods: one at a time, each after
// the previous one has caught up.
func UpgradeEtcd(env module.Env) engine.Module {
	const id = "upgrade.etcd"
	return engine.Module{Name: "etcd", Tasks: []engine.Task{repairMembersTask(env), {
		ID: id, Title: "replace etcd", Needs: []string{stepRepairMembers}, Timeout: 20 * time.Minute,
		On: func(h *engine.Host) bool { return env.HasStackedEtcd() && h.HasRole(v1alpha1.RoleControlPlane) },
		// On the host on which the cluster was created this works like any change of the
		// settings.
		When:    func(s *engine.Scope) bool { return env.Upgrade.RunsStep(id, s.Host()) || env.IsInitNode(s.Host()) },
		Rollout: engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"},
		Ops: func(s *engine.Scope) (op.List, error) {
			e := etcdPhase().asExec()
			if !env.IsInitNode(s.Host()) { // on the host on which the cluster was created it is the same step as at its creation
				e.Name, e.Creates, e.Declares = "kubeadm-upgrade-etcd", nil, []string{manifestPath("etcd")}
			}
			e = gateOnAllMembers(env, e)
			e.ThenLater = true
			return append(op.List{
				e,
				// The API server is killed when its member has ended, and waits for the new one
				// at its start. Otherwise it would accept requests without answering them: the
				// kubelet would wait half a minute for it before it starts the new member, and
				// the API server would wait a minute for its clients before it ends.
				op.StaticPodRestart{
					Manifest: module.APIServerManifest, Files: []string{manifestPath("etcd")}, AfterEnd: "etcd", AtOnce: true,
					TimeoutSeconds: 300,
				},
				waitContainer(env, "etcd"),
				// A ready member serves a linearizable read, so it has caught up.
				op.Wait{HTTP: env.LocalMemberReadyURL(), Manifest: manifestPath("etcd"), TimeoutSeconds: 300},
				waitLocalAPI(env),
			}, env.ComponentsHealthy()...), nil
		},
	}}}
}

// keyRights means that nodes have the permissions of this release.
var keyRights = engine.NewKey("upgrade.rights", false)

// UpgradeAddons is the module that upgrades the components of kubeadm in the cluster, and
// the permissions of nodes to join.
func UpgradeAddons(env module.Env) engine.Module {
	e := initPhase(env, "bootstrap-token").asExec()
	e.Name, e.Inputs = "kubeadm-upgrade-rights", []string{ConfigFile} // runs once for each release
	tokens := revokeTokensTask(env, func(s *engine.Scope) bool { return !engine.IsKnown(s, keyRights) }, "upgrade.rights")
	tokens.Consumes = append(tokens.Consumes, keyRights.Ref())
	return engine.Module{Name: "control-plane", Tasks: []engine.Task{
		{
			ID: "upgrade.rights", Title: "update node permissions", On: env.IsFirst,
			Provides: []engine.KeyRef{keyRights.Ref()},
			Ops:      func(*engine.Scope) (op.List, error) { return op.List{e}, nil },
			After: func(_ context.Context, s *engine.Scope, _ []op.Result) error {
				engine.ProvideValue(s, keyRights, true)
				return nil
			},
		},
		tokens, // the phase creates one
		initPhaseTask(env, "mark-control-plane"), initPhaseTask(env, "addon-dns"), initPhaseTask(env, "addon-proxy"),
	}}
}

// initPhaseTask returns the task of one of the phases that create a cluster.
func initPhaseTask(env module.Env, id string) engine.Task { return initPhase(env, id).asTask(env) }

// waitContainer waits for a container of a control plane in the version of this release.
func waitContainer(env module.Env, name string) op.Wait {
	return op.Wait{Container: name, Image: env.Release.ImageRefs()[name], TimeoutSeconds: 300}
}

// waitComponentsUpgraded waits until all components of a control plane are healthy in the
// versions of this release, and have run for a time.
func waitComponentsUpgraded(env module.Env, steady time.Duration) op.List {
	return slices.Concat(
		op.List{
			waitContainer(env, "kube-apiserver"), waitLocalAPI(env), waitContainer(env, "kube-controller-manager"),
			waitContainer(env, "kube-scheduler"),
		},
		waitComponentsHealthy(env, steady),
	)
}

// How long a new component must have run to count as healthy. With an unknown flag it
// exits at once. With some other bad settings it exits when it becomes the leader, at the
// latest when the lease of the previous leader expires after 15 s.
const (
	steadyTime  = 20 * time.Second
	createdTime = 5 * time.Second // there was no leader before
)

// waitComponentsHealthy waits until the controller manager and the scheduler are
// healthy with their settings, and have run for a time. If one exits repeatedly, the
// wait stops, and the error has its last log lines.
func waitComponentsHealthy(env module.Env, steady time.Duration) (out op.List) {
	for _, w := range env.ComponentWaits() {
		w.Crashes, w.SteadySeconds, w.TimeoutSeconds = mostCrashes, int(steady.Seconds()), 120
		out = append(out, w)
	}
	return out
}

// waitReconfiguredComponents is waitComponentsHealthy for settings that may have changed.
func waitReconfiguredComponents(env module.Env) op.List {
	if env.NewControlPlaneSettings {
		return waitComponentsHealthy(env, steadyTime)
	}
	return waitComponentsHealthy(env, createdTime)
}
