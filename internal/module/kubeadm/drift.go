package kubeadm

import (
	"context"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
)

const kubeSystem = "kube-system"

var (
	// keyRecords is the reason why kubeadm must upload its settings again; "" if they are
	// unchanged.
	keyRecords = engine.NewKey("kubeadm.records", "the saved configuration is not known yet")
	// keyAddons holds the objects of the kubeadm add-ons, as kubeadm renders them.
	keyAddons = engine.NewKey("kubeadm.addons", placeholderAddons())
)

// rerunControlPlanePhase returns the manifests of all components except etcd: kubeadm
// writes them when the settings change, and they are restored when they were edited.
func rerunControlPlanePhase() op.List {
	list := op.List{componentsPhase().asExec()}
	for _, m := range componentManifests() {
		list = append(list, op.BaselineFile{Path: m})
	}
	return append(list, restartForAudit())
}

// memberTask restores the manifest of etcd. It changes one member after the other, and a
// healthy member only while all members are healthy: if the manifest was edited on all
// hosts, they must not all be down at the same time.
func memberTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "kubeadm.member", Title: "restore etcd manifest", Timeout: 8 * time.Minute,
		On:      func(h *engine.Host) bool { return hasMember(env, h) },
		When:    func(s *engine.Scope) bool { return module.IsJoined(s.Host()) },
		Rollout: engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"},
		Ops: func(*engine.Scope) (op.List, error) {
			back := op.BaselineFile{
				Path: manifestPath("etcd"), Serves: env.WaitLocalMember("health"), Gate: env.WaitAllMembersHealthy(),
				// The member reports its own status, with or without the others.
				Then: env.WaitLocalMember("status"),
			}
			back.Then.Manifest = back.Path
			return op.List{back}, nil
		},
	}
}

// rerunPhase runs a phase of `kubeadm init` on an additional control plane, with its own
// settings: missing files are created, existing ones remain.
func rerunPhase(name string, argv []string, creates ...string) op.Exec {
	e := phase{id: name, argv: argv, creates: creates, whole: true}.asExec()
	e.Name = "kubeadm-again-" + name
	return e
}

func kubeconfigPaths() []string {
	return []string{adminConf, "/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/scheduler.conf"}
}

func rerunKubeconfigPhases() (list op.List) {
	for _, file := range kubeconfigPaths() {
		name := strings.TrimSuffix(path.Base(file), ".conf")
		list = append(list, rerunPhase("kubeconfig-"+name, []string{"kubeconfig", name}, file))
	}
	return list
}

// StepConfigUploaded is the step after which the configuration that kubeadm has saved
// in the cluster is correct.
const StepConfigUploaded = "kubeadm.record"

// ReuploadConfig is the module that detects manual changes of the configuration that
// kubeadm has saved in the cluster: nodes that join use it.
func ReuploadConfig(env module.Env) engine.Module {
	return engine.Module{Name: "kept", Tasks: []engine.Task{
		{
			ID: "kubeadm.records", Title: "check saved kubeadm configuration", On: env.IsFirst,
			Consumes: []engine.KeyRef{module.KeyKube.Ref()}, Provides: []engine.KeyRef{keyRecords.Ref()},
			Run: &engine.Action{Check: checkSavedConfigs, Apply: releaseSavedConfigs},
		},
		{
			ID: StepConfigUploaded, Title: "upload kubeadm configuration again", On: env.IsFirst, Consumes: []engine.KeyRef{keyRecords.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) {
				why := engine.GetValue(s, keyRecords)
				if why == "" {
					return nil, nil
				}
				e := initPhase(env, "upload-config").asExec()
				e.Again = why
				return op.List{e}, nil
			},
		},
	}}
}

// RestoreAddons is the module that detects manual changes of the kubeadm add-ons, and
// of the permissions of keys on hosts.
func RestoreAddons(env module.Env) engine.Module {
	return engine.Module{Name: "kept", Tasks: append([]engine.Task{
		{
			ID: "kubernetes.private", Title: "restrict keys to root",
			Ops: func(*engine.Scope) (op.List, error) {
				return op.List{op.RootOnly{Name: "keys and credentials", Paths: []string{
					"/etc/kubernetes/pki/*.key", "/etc/kubernetes/pki/etcd/*.key",
					adminConf, module.InitMark, module.EncryptionFile, "/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/scheduler.conf",
					kubeletConf, bootstrapConf, "/var/lib/kubelet/pki/*.pem", "/var/lib/kubelet/pki/*.key",
				}}}, nil
			},
		},
		removeAuditTask(env),
		removeHardeningTask(env),
		addonsTask(env),
		{
			ID: "kubeadm.objects", Title: "update CoreDNS and kube-proxy", On: env.IsFirst,
			Consumes: []engine.KeyRef{module.KeyKube.Ref(), keyAddons.Ref()},
			Run:      module.KeepObjects(wantedAddons),
		},
	}, proxyTasks(env)...)}
}

// proxyTasks change the mode of kube-proxy: its pods are replaced one after the other, and
// each removes the rules of the previous mode and creates its own.
func proxyTasks(env module.Env) []engine.Task {
	const begins = "kubernetes.proxy-pods"
	mode := env.Cluster.Spec.Kubernetes.ProxyMode
	// reason identifies the configuration that the pods were started for: with other
	// feature gates they are restarted, in the same mode.
	reason := strings.TrimSpace(mode + " " + featureGates(env.Cluster.Spec.Kubernetes.FeatureGates)[gatesFlag])
	other := func(*engine.Scope) bool { return env.NewProxySettings && mode != "none" }
	pods := kube.Workload{Kind: "DaemonSet", Namespace: kubeSystem, Name: "kube-proxy"}
	within := proxyTime * time.Duration(1+len(env.Cluster.Spec.Hosts))
	return []engine.Task{
		{
			ID: begins, Title: "restart kube-proxy in mode " + mode, Manager: true, When: other,
			Needs: []string{"kubeadm.objects"}, Consumes: []engine.KeyRef{module.KeyKube.Ref()},
			Run: &engine.Action{
				Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
					change := []plan.OpChange{{Kind: module.KindObject, Target: pods.String(), Summary: "restart its pods one after the other"}}
					client := engine.GetValue(s, module.KeyKube)
					if client == nil {
						return change, nil
					}
					is, err := client.Workloads().RestartedFor(ctx, pods)
					if is == reason || err != nil {
						return nil, err
					}
					return change, nil
				},
				Apply: func(ctx context.Context, s *engine.Scope) error {
					return engine.GetValue(s, module.KeyKube).Workloads().RestartFor(ctx, pods, reason)
				},
			},
		},
		{
			ID: "kubernetes.proxy", Title: "wait for kube-proxy in mode " + mode, On: module.IsNode, When: other,
			Needs: []string{begins}, Timeout: within + time.Minute, // the wait has its own error message
			Ops: func(s *engine.Scope) (op.List, error) {
				loopback := "127.0.0.1"
				if strings.Contains(module.InternalAddress(s.Host().Host), ":") {
					loopback = "::1"
				}
				return op.List{op.Wait{
					HTTP: "http://" + net.JoinHostPort(loopback, "10249") + "/proxyMode",
					Says: mode, TimeoutSeconds: int(within.Seconds()),
				}}, nil
			},
		},
	}
}

// proxyTime is the timeout for kube-proxy on one node.
const proxyTime = time.Minute

// byKubeadm is the field manager of kubeadm.
const byKubeadm = "kubeadm"

// savedConfigs returns the ConfigMaps in which kubeadm saves its settings, and their keys.
func savedConfigs() [][2]string {
	return [][2]string{{"kubeadm-config", "ClusterConfiguration"}, {"kubelet-config", "kubelet"}}
}

// checkSavedConfigs checks who last wrote the saved settings of kubeadm. The API server
// tracks field managers, so this also works for older clusters.
func checkSavedConfigs(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
	client := engine.GetValue(s, module.KeyKube)
	var changes []plan.OpChange
	var why []string
	for _, r := range savedConfigs() {
		if client == nil { // the API does not answer; dependent steps are pending
			changes = append(changes,
				plan.OpChange{Kind: module.KindObject, Target: describeConfigMap(r[0]), Summary: "upload again, if it was changed"})
			continue
		}
		how, err := diffSavedConfig(ctx, client, r[0], r[1])
		if err != nil {
			return nil, err
		}
		if how != "" {
			changes = append(changes,
				plan.OpChange{Kind: module.KindObject, Target: describeConfigMap(r[0]), Summary: how + ": kubeadm uploads it again"})
			why = append(why, describeConfigMap(r[0])+" "+how)
		}
	}
	if client != nil {
		engine.ProvideValue(s, keyRecords, strings.Join(why, ", "))
	}
	return changes, nil
}

func describeConfigMap(name string) string { return "ConfigMap " + kubeSystem + "/" + name }

// diffSavedConfig returns how a saved configuration differs from what kubeadm wrote; "" if
// it does not.
func diffSavedConfig(ctx context.Context, client *kube.Client, name, key string) (string, error) {
	by, found, err := client.ConfigMaps().FindFieldManagers(ctx, kubeSystem, name, key)
	switch {
	case err != nil:
		return "", err
	case !found:
		return "is missing", nil
	case len(by) > 0 && !slices.Contains(by, byKubeadm):
		return "was changed by " + strings.Join(by, ", "), nil
	}
	return "", nil
}

// releaseSavedConfigs changes a saved configuration so that kubeadm becomes its field
// manager: kubeadm must write something different from the present content, and the
// manual change may be the same. If it is interrupted before kubeadm writes, the change
// is detected again.
func releaseSavedConfigs(ctx context.Context, s *engine.Scope) error {
	client := engine.GetValue(s, module.KeyKube)
	for _, r := range savedConfigs() {
		how, err := diffSavedConfig(ctx, client, r[0], r[1])
		if err != nil {
			return err
		}
		live, err := client.ConfigMaps().Get(ctx, kubeSystem, r[0])
		if err != nil {
			return err
		}
		if how == "" || live == nil {
			continue
		}
		err = client.Objects().Apply(ctx, []*unstructured.Unstructured{{Object: object{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": r[0], "namespace": kubeSystem},
			"data": object{r[1]: live.Data[r[1]] + "\n"},
		}}})
		if err != nil {
			return err
		}
	}
	return nil
}

// addonsTask renders the add-ons with kubeadm. It passes the wanted settings, whatever the
// host has.
func addonsTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "kubeadm.addons", Title: "render kubeadm add-ons", On: env.IsFirst, Provides: []engine.KeyRef{keyAddons.Ref()},
		Ops: func(s *engine.Scope) (op.List, error) {
			docs, err := initDocuments(env, s.Host())
			if err != nil {
				return nil, err
			}
			var list op.List
			for _, p := range initPhases(env) {
				if name, ok := strings.CutPrefix(p.id, "addon-"); ok && (p.when == nil || p.when(env.Cluster)) {
					argv := append(append([]string{program, "init", "phase"}, p.argv...), "--print-manifest", "--config", "/dev/stdin")
					list = append(list, op.Query{Name: "manifests of " + name, Argv: argv, Stdin: docs})
				}
			}
			return list, nil
		},
		After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
			var all []*unstructured.Unstructured
			for _, r := range results {
				if r.Missing {
					return nil // kubeadm is missing or damaged; dependent steps are pending
				}
				objs, err := kube.DecodeObjects(r.Output)
				if err != nil {
					return fmt.Errorf("reading %s from kubeadm: %w", r.Target, err)
				}
				all = append(all, objs...)
			}
			engine.ProvideValue(s, keyAddons, slices.DeleteFunc(all, dropForeignFields))
			return nil
		},
	}
}

// dropForeignFields leaves the settings of CoreDNS to module dns. It removes fields
// that only a server sets.
func dropForeignFields(o *unstructured.Unstructured) bool {
	unstructured.RemoveNestedField(o.Object, "status")
	for _, field := range []string{"creationTimestamp", "resourceVersion"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	return o.GetKind() == "ConfigMap" && o.GetName() == "coredns"
}

// wantedAddons returns the wanted objects. The number of CoreDNS replicas is left to
// others, such as an autoscaler, unless it is zero.
func wantedAddons(ctx context.Context, s *engine.Scope) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, o := range engine.GetValue(s, keyAddons) {
		o = o.DeepCopy()
		if o.GetKind() == "Deployment" && !s.IsPending() {
			n, err := engine.GetValue(s, module.KeyKube).Workloads().GetReplicas(ctx, o.GetNamespace(), o.GetName())
			if err != nil {
				return nil, err
			}
			if n > 0 {
				if err := unstructured.SetNestedField(o.Object, n, "spec", "replicas"); err != nil {
					return nil, fmt.Errorf("reading %s from kubeadm: %w", o.GetName(), err)
				}
			}
		}
		out = append(out, o)
	}
	return out, nil
}

// placeholderAddons returns placeholders for the objects until kubeadm has rendered them.
func placeholderAddons() (out []*unstructured.Unstructured) {
	for _, o := range []struct{ version, kind, namespace, name string }{
		{"apps/v1", "Deployment", kubeSystem, "coredns"},
		{"v1", "Service", kubeSystem, "kube-dns"},
		{"v1", "ServiceAccount", kubeSystem, "coredns"},
		{"rbac.authorization.k8s.io/v1", "ClusterRole", "", "system:coredns"},
		{"rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", "system:coredns"},
		{"apps/v1", "DaemonSet", kubeSystem, "kube-proxy"},
		{"v1", "ConfigMap", kubeSystem, "kube-proxy"},
		{"v1", "ServiceAccount", kubeSystem, "kube-proxy"},
		{"rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", "kubeadm:node-proxier"},
		{"rbac.authorization.k8s.io/v1", "Role", kubeSystem, "kube-proxy"},
		{"rbac.authorization.k8s.io/v1", "RoleBinding", kubeSystem, "kube-proxy"},
	} {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(o.version)
		u.SetKind(o.kind)
		u.SetNamespace(o.namespace)
		u.SetName(o.name)
		out = append(out, u)
	}
	return out
}
