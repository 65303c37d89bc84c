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
	// keyRecords says why kubeadm is to record its settings again; "" is that
	// they are as it left them.
	keyRecords = engine.NewKey("kubeadm.records", "what is on record is not known")
	// keyAddons are the objects of kubeadm's add-ons, as it makes them.
	keyAddons = engine.NewKey("kubeadm.addons", namesOfAddons())
)

// controlPlane are the manifests of all but etcd: written by kubeadm when the
// settings are others, and put back when somebody has changed them.
func controlPlane() op.List {
	list := op.List{components().exec()}
	for _, m := range componentManifests() {
		list = append(list, op.Kept{Path: m})
	}
	return append(list, auditFollows())
}

// memberTask puts the manifest of etcd back. One member after the other, and of
// one that serves not before all do: a change that was made on all of them
// must not have them all away at a time.
func memberTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "kubeadm.member", Title: "keep the manifest of etcd", Timeout: 8 * time.Minute,
		On:      func(h *engine.Host) bool { return hasMember(env, h) },
		When:    func(s *engine.Scope) bool { return module.Holds(s.Host()) },
		Rollout: engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"},
		Ops: func(*engine.Scope) (op.List, error) {
			back := op.Kept{
				Path: manifest("etcd"), Serves: env.AskMember("health"), Gate: env.EveryMember(),
				// It answers for itself, whether the others are there or not.
				Then: env.AskMember("status"),
			}
			back.Then.Manifest = back.Path
			return op.List{back}, nil
		},
	}
}

// again runs a phase of `kubeadm init` on a further control plane, by its own
// settings: what is missing is made, and what is there stays.
func again(name string, argv []string, creates ...string) op.Exec {
	e := phase{id: name, argv: argv, creates: creates, whole: true}.exec()
	e.Name = "kubeadm-again-" + name
	return e
}

func kubeconfigs() []string {
	return []string{adminConf, "/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/scheduler.conf"}
}

func kubeconfigsAgain() (list op.List) {
	for _, file := range kubeconfigs() {
		name := strings.TrimSuffix(path.Base(file), ".conf")
		list = append(list, again("kubeconfig-"+name, []string{"kubeconfig", name}, file))
	}
	return list
}

// StepRecord is the step after which what kubeadm recorded is as it shall be.
const StepRecord = "kubeadm.record"

// Records is the module that finds what somebody has changed of the settings that
// kubeadm recorded: nodes that join go by them.
func Records(env module.Env) engine.Module {
	return engine.Module{Name: "kept", Tasks: []engine.Task{
		{
			ID: "kubeadm.records", Title: "look at what kubeadm recorded", On: env.IsFirst,
			Consumes: []engine.KeyRef{module.KeyKube.Ref()}, Provides: []engine.KeyRef{keyRecords.Ref()},
			Run: &engine.Action{Check: records, Apply: releaseRecords},
		},
		{
			ID: StepRecord, Title: "record the configuration again", On: env.IsFirst, Consumes: []engine.KeyRef{keyRecords.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) {
				why := engine.Get(s, keyRecords)
				if why == "" {
					return nil, nil
				}
				e := initPhase(env, "upload-config").exec()
				e.Again = why
				return op.List{e}, nil
			},
		},
	}}
}

// Addons is the module that finds what somebody has changed of kubeadm's add-ons,
// and who may read a host's keys.
func Addons(env module.Env) engine.Module {
	return engine.Module{Name: "kept", Tasks: append([]engine.Task{
		{
			ID: "kubernetes.private", Title: "keep keys to root",
			Ops: func(*engine.Scope) (op.List, error) {
				return op.List{op.Private{Name: "keys and credentials", Paths: []string{
					"/etc/kubernetes/pki/*.key", "/etc/kubernetes/pki/etcd/*.key",
					adminConf, module.InitMark, module.EncryptionFile, "/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/scheduler.conf",
					kubeletConf, bootstrapConf, "/var/lib/kubelet/pki/*.pem", "/var/lib/kubelet/pki/*.key",
				}}}, nil
			},
		},
		unauditTask(env),
		unhardenTask(env),
		addonsTask(env),
		{
			ID: "kubeadm.objects", Title: "keep CoreDNS and kube-proxy", On: env.IsFirst,
			Consumes: []engine.KeyRef{module.KeyKube.Ref(), keyAddons.Ref()},
			Run:      module.Objects(addons),
		},
	}, proxyTasks(env)...)}
}

// proxyTasks have kube-proxy run in another mode: its pods are exchanged one after the
// other, and each takes away the rules of the mode before, and makes its own.
func proxyTasks(env module.Env) []engine.Task {
	const begins = "kubernetes.proxy-pods"
	mode := env.Cluster.Spec.Kubernetes.ProxyMode
	// reason is what the pods were started for: with other gates they start again, in
	// the same mode.
	reason := strings.TrimSpace(mode + " " + featureGates(env.Cluster.Spec.Kubernetes.FeatureGates)[gatesFlag])
	other := func(*engine.Scope) bool { return env.OtherProxy && mode != "none" }
	pods := kube.Workload{Kind: "DaemonSet", Namespace: kubeSystem, Name: "kube-proxy"}
	within := proxyTime * time.Duration(1+len(env.Cluster.Spec.Hosts))
	return []engine.Task{
		{
			ID: begins, Title: "have kube-proxy start in mode " + mode, Manager: true, When: other,
			Needs: []string{"kubeadm.objects"}, Consumes: []engine.KeyRef{module.KeyKube.Ref()},
			Run: &engine.Action{
				Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
					change := []plan.OpChange{{Kind: module.KindObject, Target: pods.String(), Summary: "one pod after the other starts anew"}}
					client := engine.Get(s, module.KeyKube)
					if client == nil {
						return change, nil
					}
					is, err := client.RestartedFor(ctx, pods)
					if is == reason || err != nil {
						return nil, err
					}
					return change, nil
				},
				Apply: func(ctx context.Context, s *engine.Scope) error {
					return engine.Get(s, module.KeyKube).RestartFor(ctx, pods, reason)
				},
			},
		},
		{
			ID: "kubernetes.proxy", Title: "wait for kube-proxy in mode " + mode, On: module.IsNode, When: other,
			Needs: []string{begins}, Timeout: within + time.Minute, // it says itself what it waits for
			Ops: func(s *engine.Scope) (op.List, error) {
				loopback := "127.0.0.1"
				if strings.Contains(module.InternalAddress(s.Host().Host), ":") {
					loopback = "::1"
				}
				return op.List{op.Wait{HTTP: "http://" + net.JoinHostPort(loopback, "10249") + "/proxyMode", Says: mode, TimeoutSeconds: int(within.Seconds())}}, nil
			},
		},
	}
}

// proxyTime bounds for how long kube-proxy of a node is waited for.
const proxyTime = time.Minute

// byKubeadm is the name by which the API server knows who wrote with kubeadm.
const byKubeadm = "kubeadm"

// recorded are the objects in which kubeadm records its settings, and where in
// their data.
func recorded() [][2]string {
	return [][2]string{{"kubeadm-config", "ClusterConfiguration"}, {"kubelet-config", "kubelet"}}
}

// records finds out who last wrote what kubeadm recorded: the API server keeps
// that, so it is known of clusters that were made before anybody asked.
func records(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
	client := engine.Get(s, module.KeyKube)
	var changes []plan.OpChange
	var why []string
	for _, r := range recorded() {
		if client == nil { // the API does not answer; those who ask are told to wait
			changes = append(changes, plan.OpChange{Kind: module.KindObject, Target: recordOf(r[0]), Summary: "record again, if it was changed"})
			continue
		}
		how, err := changedRecord(ctx, client, r[0], r[1])
		if err != nil {
			return nil, err
		}
		if how != "" {
			changes = append(changes, plan.OpChange{Kind: module.KindObject, Target: recordOf(r[0]), Summary: how + ": kubeadm records it again"})
			why = append(why, recordOf(r[0])+" "+how)
		}
	}
	if client != nil {
		engine.Provide(s, keyRecords, strings.Join(why, ", "))
	}
	return changes, nil
}

func recordOf(name string) string { return "ConfigMap " + kubeSystem + "/" + name }

// changedRecord says how a record is not as kubeadm left it.
func changedRecord(ctx context.Context, client *kube.Client, name, key string) (string, error) {
	by, found, err := client.Writers(ctx, kubeSystem, name, key)
	switch {
	case err != nil:
		return "", err
	case !found:
		return "is gone", nil
	case len(by) > 0 && !slices.Contains(by, byKubeadm):
		return "was changed by " + strings.Join(by, ", "), nil
	}
	return "", nil
}

// releaseRecords has a record be nobody's any more: kubeadm becomes who wrote it
// by writing something else than is there, and what somebody wrote may be the
// same. Cut before kubeadm has written it is found again.
func releaseRecords(ctx context.Context, s *engine.Scope) error {
	client := engine.Get(s, module.KeyKube)
	for _, r := range recorded() {
		how, err := changedRecord(ctx, client, r[0], r[1])
		if err != nil {
			return err
		}
		live, err := client.ConfigMap(ctx, kubeSystem, r[0])
		if err != nil {
			return err
		}
		if how == "" || live == nil {
			continue
		}
		err = client.Apply(ctx, []*unstructured.Unstructured{{Object: object{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": r[0], "namespace": kubeSystem},
			"data": object{r[1]: live.Data[r[1]] + "\n"},
		}}})
		if err != nil {
			return err
		}
	}
	return nil
}

// addonsTask asks kubeadm for its add-ons as it would make them. It is told the
// settings that are wanted, whatever the host has on record.
func addonsTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "kubeadm.addons", Title: "ask kubeadm for its add-ons", On: env.IsFirst, Provides: []engine.KeyRef{keyAddons.Ref()},
		Ops: func(s *engine.Scope) (op.List, error) {
			docs, err := initDocuments(env, s.Host())
			if err != nil {
				return nil, err
			}
			var list op.List
			for _, p := range initPhases(env) {
				if name, ok := strings.CutPrefix(p.id, "addon-"); ok && (p.when == nil || p.when(env.Cluster)) {
					argv := append(append([]string{program, "init", "phase"}, p.argv...), "--print-manifest", "--config", "/dev/stdin")
					list = append(list, op.Ask{Name: "manifests of " + name, Argv: argv, Stdin: docs})
				}
			}
			return list, nil
		},
		After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
			var all []*unstructured.Unstructured
			for _, r := range results {
				if r.Missing {
					return nil // no kubeadm, or one that is to be mended; those who ask are told to wait
				}
				objs, err := kube.Objects(r.Output)
				if err != nil {
					return fmt.Errorf("reading kubeadm's %s: %w", r.Target, err)
				}
				all = append(all, objs...)
			}
			engine.Provide(s, keyAddons, slices.DeleteFunc(all, notOurs))
			return nil
		},
	}
}

// notOurs leaves the settings of CoreDNS to module dns. What only a server says
// of an object is taken out.
func notOurs(o *unstructured.Unstructured) bool {
	unstructured.RemoveNestedField(o.Object, "status")
	for _, field := range []string{"creationTimestamp", "resourceVersion"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	return o.GetKind() == "ConfigMap" && o.GetName() == "coredns"
}

// addons are the objects as they shall be. How many CoreDNS there are is for
// others to say, such as an autoscaler, unless they say that there be none.
func addons(ctx context.Context, s *engine.Scope) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, o := range engine.Get(s, keyAddons) {
		o = o.DeepCopy()
		if o.GetKind() == "Deployment" && !s.Pending() {
			n, err := engine.Get(s, module.KeyKube).Replicas(ctx, o.GetNamespace(), o.GetName())
			if err != nil {
				return nil, err
			}
			if n > 0 {
				if err := unstructured.SetNestedField(o.Object, n, "spec", "replicas"); err != nil {
					return nil, fmt.Errorf("reading kubeadm's %s: %w", o.GetName(), err)
				}
			}
		}
		out = append(out, o)
	}
	return out, nil
}

// namesOfAddons stand in for the objects until kubeadm was asked.
func namesOfAddons() (out []*unstructured.Unstructured) {
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
