package kubeadm

import (
	"context"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/spec"
)

//go:embed templates
var files embed.FS

// kubeletFiles are the kubelet's unit and the settings of the user. They
// stand beside what kubeadm writes, so that changing them is a file and a
// restart on each node. The kubelet itself is started by kubeadm, once it has
// something to run with; from then on the unit is ours.
func kubeletFiles(env module.Env, h *engine.Host) (op.List, error) {
	settings, err := kubeletDropIn(env)
	if err != nil {
		return nil, err
	}
	values := map[string]string{"ConfigDir": dropInDir, "Args": flags(env.Cluster.Spec.Kubernetes.Kubelet.ExtraArgs)}
	values["Runtime"] = "containerd.service"
	if env.Docker() {
		values["Runtime"] = "cri-docker.service"
	}
	dirs := []string{facts.DirKubelet}
	if hasMember(env, h) {
		values["Data"], values["Joined"] = facts.EtcdData, facts.EtcdJoined
		dirs = append(dirs, facts.DirEtcd)
	}
	values["Mounts"] = module.UnitMounts(dirs...)
	unit, err := module.Render(files, "kubelet.service", values)
	if err != nil {
		return nil, err
	}
	return op.List{
		// The keys of this node and the volumes of its pods must not stay.
		op.Dir{Path: facts.DirKubelet, Mode: 0o750, Exclusive: true, Shared: []string{"pki", "pods"}},
		op.Dir{Path: "/var/log/pods", Exclusive: true},
		op.Dir{Path: "/var/log/containers", Exclusive: true},
		op.Dir{Path: dropInDir},
		// They stay as long as the node does, whatever comes and goes in them.
		op.Dir{Path: "/etc/kubernetes/manifests", Mode: 0o700},
		op.Dir{Path: "/etc/kubernetes/slipway", Mode: 0o700},
		// Else the kubelet makes it; others may put plugins there.
		op.Dir{Path: "/usr/libexec/kubernetes/kubelet-plugins/volume/exec"},
		op.File{Path: dropInFile, Content: settings},
		op.File{Path: unitFile, Content: unit},
		op.Kept{Path: kubeletConfig},
		op.Kept{Path: kubeletFlags},
		op.Kept{Path: kubeletOwn},
		kubeletSetUp(env, h),
	}, nil
}

// keptOfKubelet are what kubeadm writes for a kubelet and leaves to nobody else.
// Credentials are not among them: the kubelet renews its own.
func keptOfKubelet() []string { return []string{kubeletConfig, kubeletFlags, kubeletOwn} }

// kubeletUnit is a node's kubelet as it shall run.
func kubeletUnit(env module.Env) op.Unit {
	u := op.Unit{
		Name: "kubelet.service", Enabled: op.Bool(true), Running: op.Bool(true),
		RestartOn: []string{unitFile, dropInFile, kubeletConfig, kubeletFlags, programs + "/kube", programs + "/kubelet"},
	}
	if env.Docker() { // it would look there again after five minutes
		u.RestartOn = append(u.RestartOn, kubeletLogins)
	}
	return u
}

// kubeletSetUp is the kubelet's unit before kubeadm has been there: enabled. On a
// control plane that has joined it runs from the start, whatever it runs with: an
// API server that has ended would be waited for in vain. It starts without state files
// that do not go with its settings.
func kubeletSetUp(env module.Env, h *engine.Host) op.Unit {
	u := op.Unit{Name: "kubelet.service", Enabled: op.Bool(true), Declares: []string{
		"/run/xtables.lock", "/run/flannel", "/var/lib/cni/flannel",
	}}
	if module.Holds(h) && h.HasRole(v1alpha1.RoleControlPlane) {
		u.Running, u.KeepRunning, u.Forgets = op.Bool(true), true, env.KubeletStates
	}
	return u
}

// hasMember selects hosts with a member of etcd in a pod. Such a member does not
// start without the kubelet, which asks for its data before it starts anything.
func hasMember(env module.Env, h *engine.Host) bool {
	return env.Stacked() && h.HasRole(v1alpha1.RoleControlPlane)
}

// kubeletDropIn is the user's KubeletConfiguration; the kubelet merges it
// over kubeadm's.
func kubeletDropIn(env module.Env) ([]byte, error) {
	// Whatever kubeadm was told when the node joined: it may have moved since.
	conf, gates := object{"containerRuntimeEndpoint": env.RuntimeSocket()}, object{}
	if env.Docker() {
		// It knows no image as one to keep, and those of the bundle could be
		// had from nowhere again: none is ever removed.
		conf["imageGCHighThresholdPercent"] = 100
		if release.Reached("1.36", env.Release.Kubernetes) {
			// It says where a program's streams are without how to speak there. A
			// kubelet that hands WebSockets on by itself takes that for HTTPS.
			gates["ExtendWebSocketsToKubelet"] = false
		}
	}
	maps.Copy(conf, spec.Harden(env.Cluster).Kubelet)
	maps.Copy(conf, env.Cluster.Spec.Kubernetes.Kubelet.Config)
	for k, v := range env.Cluster.Spec.Kubernetes.FeatureGates {
		gates[k] = v
	}
	if theirs, ok := conf["featureGates"].(map[string]any); ok {
		maps.Copy(gates, theirs)
	}
	if len(gates) > 0 {
		conf["featureGates"] = gates
	}
	conf["apiVersion"], conf["kind"] = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	text, err := yaml.Marshal(conf)
	if err != nil {
		return nil, fmt.Errorf("writing the kubelet's settings: %w", err)
	}
	return text, nil
}

// flags are for a systemd unit's ExecStart: each is quoted for systemd.
func flags(m map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b.WriteString(" " + module.UnitWord("--"+k+"="+m[k]))
	}
	return b.String()
}

// Restart is the module that restarts the kubelet of a node that the cluster has
// when its settings are others, and waits until the node does what it did before.
func Restart(env module.Env) engine.Module {
	return engine.Module{Name: "kubelet", Tasks: []engine.Task{{
		ID: StepKubelet, Title: "give the kubelet its settings", Timeout: 8 * time.Minute,
		On: func(h *engine.Host) bool { return module.IsNode(h) && module.Holds(h) },
		Ops: func(s *engine.Scope) (op.List, error) {
			return op.List{restarted(env, s.Host())}, nil
		},
	}}}
}

// restarted is the unit of a kubelet that may get other settings.
func restarted(env module.Env, h *engine.Host) op.Unit {
	u := kubeletUnit(env)
	u.Again, u.Forgets = env.Again(h, u.Name), env.KubeletStates
	return u
}

// Outdated reports whether the kubelet of a host is about to start without its state
// files, because its settings or its unit change, or have changed since it was started.
func Outdated(env module.Env) func(context.Context, *engine.Scope) (bool, error) {
	return func(ctx context.Context, s *engine.Scope) (bool, error) {
		list, err := kubeletFiles(env, s.Host())
		if err != nil {
			return false, err
		}
		list = slices.DeleteFunc(list, func(o op.Op) bool { return o.Kind() != op.KindFile })
		results, err := s.Host().Conn.Check(ctx, append(list, restarted(env, s.Host())))
		return slices.ContainsFunc(results, func(r op.Result) bool { return r.Status == op.Changed }), err
	}
}

// ReachBefore is the module that reaches the API before nodes get other settings.
func ReachBefore(env module.Env) engine.Module {
	return engine.Module{Name: "control-plane", Tasks: []engine.Task{{
		ID: "settings.api", Title: "reach the API", On: env.IsFirst, Provides: []engine.KeyRef{module.KeyKubeBefore.Ref()},
		Ops: func(*engine.Scope) (op.List, error) { return op.List{op.ReadFile{Path: adminConf, Secret: true}}, nil },
		After: func(ctx context.Context, s *engine.Scope, results []op.Result) error {
			if results[0].Missing {
				return nil
			}
			return provideClient(ctx, s, module.KeyKubeBefore, func(patience time.Duration) (*kube.Client, error) {
				return kube.New(results[0].Output, anyServer(s), kube.Options{Address: localAPI(env), Patience: patience})
			})
		},
	}}}
}

// StepKubelet is the step after which the kubelets of a cluster that runs have
// their settings.
const StepKubelet = "kubelet.settings"

// kubeletStays is the kubelet's unit when it may have its settings already: then
// it is only to be there.
func kubeletStays(env module.Env, h *engine.Host) op.Unit {
	u := kubeletUnit(env)
	if env.Gated && module.Holds(h) {
		u.KeepRunning, u.RestartOn = true, nil
	}
	return u
}

// kubeletFollows are the files with which a kubelet is started.
func kubeletFollows() []string { return []string{unitFile, dropInFile, programs + "/kube"} }

// Kubelet is the module that keeps a joined node's kubelet running with its
// settings.
func Kubelet(env module.Env) engine.Module {
	return engine.Module{Name: "kubelet", Tasks: []engine.Task{{
		ID: "kubelet.running", Title: "keep the kubelet running", On: module.IsNode,
		Provides: []engine.KeyRef{module.KeyKubeletStarted.Ref()},
		Ops: func(s *engine.Scope) (op.List, error) {
			return op.List{
				kubeletStays(env, s.Host()),
				op.UnitStarted{Name: "kubelet.service"},
			}, nil
		},
		After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
			var at time.Time
			if !results[1].Missing { // else it is about to be, and its node's word is all there is
				var err error
				if at, err = time.Parse(time.RFC3339Nano, string(results[1].Output)); err != nil {
					return fmt.Errorf("reading when the kubelet was started: %w", err)
				}
			}
			engine.Provide(s, module.KeyKubeletStarted, &at)
			return nil
		},
	}}}
}
