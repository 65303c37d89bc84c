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

// kubeletFiles returns the unit of the kubelet and the settings of the user. They are
// separate from the files of kubeadm, so changing them is a file and a restart on each
// node. kubeadm starts the kubelet first, when it has its configuration; afterwards
// Slipway manages the unit.
func kubeletFiles(env module.Env, h *engine.Host) (op.List, error) {
	settings, err := kubeletDropIn(env)
	if err != nil {
		return nil, err
	}
	values := map[string]string{"ConfigDir": dropInDir, "Args": quoteFlags(env.Cluster.Spec.Kubernetes.Kubelet.ExtraArgs)}
	values["Runtime"] = "containerd.service"
	if env.UsesDocker() {
		values["Runtime"] = "cri-docker.service"
	}
	dirs := []string{facts.DirKubelet}
	if hasMember(env, h) {
		values["Data"], values["Joined"] = facts.EtcdData, facts.EtcdJoined
		dirs = append(dirs, facts.DirEtcd)
	}
	values["Mounts"] = module.UnitMounts(dirs...)
	unit, err := module.RenderTemplate(files, "kubelet.service", values)
	if err != nil {
		return nil, err
	}
	return op.List{
		// The keys of this node and the volumes of its pods must be removed with the node.
		op.Dir{Path: facts.DirKubelet, Mode: 0o750, Exclusive: true, Shared: []string{"pki", "pods"}},
		op.Dir{Path: "/var/log/pods", Exclusive: true},
		op.Dir{Path: "/var/log/containers", Exclusive: true},
		op.Dir{Path: dropInDir},
		// These directories remain as long as the node, whatever their content.
		op.Dir{Path: "/etc/kubernetes/manifests", Mode: 0o700},
		op.Dir{Path: "/etc/kubernetes/slipway", Mode: 0o700},
		// Otherwise the kubelet creates it; other programs may put plugins there.
		op.Dir{Path: "/usr/libexec/kubernetes/kubelet-plugins/volume/exec"},
		op.File{Path: dropInFile, Content: settings},
		op.File{Path: unitFile, Content: unit},
		op.BaselineFile{Path: kubeletConfig},
		op.BaselineFile{Path: kubeletFlags},
		op.BaselineFile{Path: kubeletOwn},
		kubeletSetUp(env, h),
	}, nil
}

// kubeletBaselineFiles returns the files that only kubeadm writes for a kubelet.
// Credentials are not among them, because the kubelet renews its own.
func kubeletBaselineFiles() []string { return []string{kubeletConfig, kubeletFlags, kubeletOwn} }

// kubeletUnit returns the wanted state of the kubelet of a node.
func kubeletUnit(env module.Env) op.Unit {
	u := op.Unit{
		Name: "kubelet.service", Enabled: op.Bool(true), Running: op.Bool(true),
		RestartOn: []string{unitFile, dropInFile, kubeletConfig, kubeletFlags, programs + "/kube", programs + "/kubelet"},
	}
	if env.UsesDocker() { // the kubelet would read it again only after five minutes
		u.RestartOn = append(u.RestartOn, kubeletLogins)
	}
	return u
}

// kubeletSetUp returns the unit of the kubelet before kubeadm has run: enabled. On a
// control plane that has joined, it is also started, with any settings, because otherwise
// the wait for a stopped API server would never end. It starts without state files that do
// not match its settings.
func kubeletSetUp(env module.Env, h *engine.Host) op.Unit {
	u := op.Unit{Name: "kubelet.service", Enabled: op.Bool(true), Declares: []string{
		"/run/xtables.lock", "/run/flannel", "/var/lib/cni/flannel",
	}}
	if module.IsJoined(h) && h.HasRole(v1alpha1.RoleControlPlane) {
		u.Running, u.KeepRunning, u.Forgets = op.Bool(true), true, env.KubeletStates
	}
	return u
}

// hasMember selects hosts with an etcd member in a pod. Such a member does not start
// without the kubelet, which needs the data of the member before it starts anything.
func hasMember(env module.Env, h *engine.Host) bool {
	return env.HasStackedEtcd() && h.HasRole(v1alpha1.RoleControlPlane)
}

// kubeletDropIn returns the KubeletConfiguration of the user; the kubelet merges it over
// the configuration of kubeadm.
func kubeletDropIn(env module.Env) ([]byte, error) {
	// This overrides the value from the join: the runtime may have changed since.
	conf, gates := object{"containerRuntimeEndpoint": env.RuntimeSocket()}, object{}
	if env.UsesDocker() {
		// The kubelet cannot pin images with Docker, and images of the bundle could not be
		// pulled again, so it must never remove any.
		conf["imageGCHighThresholdPercent"] = 100
		if release.HasReached("1.36", env.Release.Kubernetes) {
			// cri-dockerd returns the address of a stream without its protocol. A kubelet
			// that forwards WebSockets itself assumes HTTPS.
			gates["ExtendWebSocketsToKubelet"] = false
		}
	}
	maps.Copy(conf, spec.HardeningSettings(env.Cluster).Kubelet)
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
		return nil, fmt.Errorf("encoding the kubelet configuration: %w", err)
	}
	return text, nil
}

// quoteFlags returns arguments for ExecStart of a systemd unit, each quoted for systemd.
func quoteFlags(m map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b.WriteString(" " + module.UnitWord("--"+k+"="+m[k]))
	}
	return b.String()
}

// RestartKubelet is the module that restarts the kubelet of an existing node when its
// settings change, and waits until the node does what it did before.
func RestartKubelet(env module.Env) engine.Module {
	return engine.Module{Name: "kubelet", Tasks: []engine.Task{{
		ID: StepKubeletSettings, Title: "apply kubelet settings", Timeout: 8 * time.Minute,
		On: func(h *engine.Host) bool { return module.IsNode(h) && module.IsJoined(h) },
		Ops: func(s *engine.Scope) (op.List, error) {
			return op.List{restartedKubeletUnit(env, s.Host())}, nil
		},
	}}}
}

// restartedKubeletUnit returns the unit of a kubelet that may receive other settings.
func restartedKubeletUnit(env module.Env, h *engine.Host) op.Unit {
	u := kubeletUnit(env)
	u.Again, u.Forgets = env.HealthGate(h, u.Name), env.KubeletStates
	return u
}

// LosesKubeletState reports whether the kubelet of a host is about to start without its
// state files, because its settings or its unit change, or have changed since it was
// started.
func LosesKubeletState(env module.Env) func(context.Context, *engine.Scope) (bool, error) {
	return func(ctx context.Context, s *engine.Scope) (bool, error) {
		list, err := kubeletFiles(env, s.Host())
		if err != nil {
			return false, err
		}
		list = slices.DeleteFunc(list, func(o op.Op) bool { return o.Kind() != op.KindFile })
		results, err := s.Host().Conn.Check(ctx, append(list, restartedKubeletUnit(env, s.Host())))
		return slices.ContainsFunc(results, func(r op.Result) bool { return r.Status == op.Changed }), err
	}
}

// ConnectAPIBeforeChange is the module that connects to the API before nodes receive
// other settings.
func ConnectAPIBeforeChange(env module.Env) engine.Module {
	return engine.Module{Name: "control-plane", Tasks: []engine.Task{{
		ID: "settings.api", Title: "connect to API", On: env.IsFirst, Provides: []engine.KeyRef{module.KeyKubeBefore.Ref()},
		Ops: func(*engine.Scope) (op.List, error) { return op.List{op.ReadFile{Path: adminConf, Secret: true}}, nil },
		After: func(ctx context.Context, s *engine.Scope, results []op.Result) error {
			if results[0].Missing {
				return nil
			}
			return provideClient(ctx, s, module.KeyKubeBefore, func(patience time.Duration) (*kube.Client, error) {
				return kube.New(results[0].Output, dialAnyServer(s), kube.Options{Address: localAPIAddress(env), Patience: patience})
			})
		},
	}}}
}

// StepKubeletSettings is the step after which the kubelets of a running cluster have their
// settings.
const StepKubeletSettings = "kubelet.settings"

// keepKubeletUnit returns the unit of a kubelet that may already have its settings: it must
// only be running.
func keepKubeletUnit(env module.Env, h *engine.Host) op.Unit {
	u := kubeletUnit(env)
	if env.IsRunning && module.IsJoined(h) {
		u.KeepRunning, u.RestartOn = true, nil
	}
	return u
}

// kubeletStartFiles returns the files that a kubelet reads at its start.
func kubeletStartFiles() []string { return []string{unitFile, dropInFile, programs + "/kube"} }

// EnsureKubeletRunning is the module that keeps the kubelet of a joined node running
// with its settings.
func EnsureKubeletRunning(env module.Env) engine.Module {
	return engine.Module{Name: "kubelet", Tasks: []engine.Task{{
		ID: "kubelet.running", Title: "ensure kubelet is running", On: module.IsNode,
		Provides: []engine.KeyRef{module.KeyKubeletStarted.Ref()},
		Ops: func(s *engine.Scope) (op.List, error) {
			return op.List{
				keepKubeletUnit(env, s.Host()),
				op.UnitStarted{Name: "kubelet.service"},
			}, nil
		},
		After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
			var at time.Time
			if !results[1].Missing { // otherwise it is about to be started, and only the node status counts
				var err error
				if at, err = time.Parse(time.RFC3339Nano, string(results[1].Output)); err != nil {
					return fmt.Errorf("reading when the kubelet was started: %w", err)
				}
			}
			engine.ProvideValue(s, module.KeyKubeletStarted, &at)
			return nil
		},
	}}}
}
