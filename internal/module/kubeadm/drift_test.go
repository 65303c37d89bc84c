package kubeadm

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// The manifests that kubeadm prints, in the order in which it would apply them.
const printed = `---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: coredns
  namespace: kube-system
spec:
  replicas: 2
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: coredns
  namespace: kube-system
data:
  Corefile: ours
---
apiVersion: v1
kind: Service
metadata:
  name: kube-dns
  namespace: kube-system
  resourceVersion: "0"
---
apiVersion: v1
kind: ServiceAccount
metadata:
  creationTimestamp: null
  name: kube-proxy
  namespace: kube-system
status: {}
`

func TestDropForeignFields_KeepsFieldsOfKubeadm(t *testing.T) {
	objs, err := kube.DecodeObjects([]byte(printed))
	if err != nil {
		t.Fatal(err)
	}
	var got []any
	for _, o := range slices.DeleteFunc(objs, dropForeignFields) {
		got = append(got, o.Object)
	}
	meta := func(name string) object { return object{"name": name, "namespace": "kube-system"} }
	want := []any{
		object{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("coredns"), "spec": object{"replicas": int64(2)}},
		object{"apiVersion": "v1", "kind": "Service", "metadata": meta("kube-dns")},
		object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("kube-proxy")},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("settings of CoreDNS and fields of the server must be dropped (-want +got):\n%s", d)
	}
}

// TestKubeletSetUp_StartsOnlyOnJoinedControlPlanes: the kubelet is started first on
// control planes that have joined, and nowhere else.
func TestKubeletSetUp_StartsOnlyOnJoinedControlPlanes(t *testing.T) {
	env := environment()
	for _, tc := range []struct {
		name, host string
		present    []string
		running    bool
	}{
		{"a control plane before it has begun", "first", nil, false},
		{"one that has joined", "second", []string{module.ClientCert}, true},
		{"a worker that has joined", "worker", []string{module.ClientCert}, false},
	} {
		u := kubeletSetUp(env, hostOf(env, tc.host, tc.present...))
		if got := u.Running != nil && *u.Running && u.KeepRunning; got != tc.running || u.RestartOn != nil {
			t.Errorf("%s: %+v", tc.name, u)
		}
	}
}

// TestLacksSharedFiles_IfAnyIsMissing: control planes receive the shared files again
// when some of them are missing.
func TestLacksSharedFiles_IfAnyIsMissing(t *testing.T) {
	env := environment()
	all := append([]string{module.ClientCert}, sharedFiles(env)...)
	for _, tc := range []struct {
		name    string
		present []string
		want    bool
	}{
		{"it has not joined", sharedFiles(env), true},
		{"it has all", all, false},
		{"it has lost one", all[:len(all)-1], true},
	} {
		if got := lacksSharedFiles(env, hostOf(env, "second", tc.present...)); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
	env.SignsApart = true
	if !lacksSharedFiles(env, hostOf(env, "second", sharedFiles(env)...)) || lacksSharedFiles(env, hostOf(env, "second", all...)) {
		t.Error("only control planes that join receive the signing certificate")
	}
	for _, p := range sharedFiles(env) {
		if !slices.Contains(MarkPaths(), p) {
			t.Errorf("the facts do not include %s", p)
		}
	}
}

// TestInitPhases_KeepFilesThatAreRestored: kept files are the files that are restored,
// and contain no secrets.
func TestInitPhases_KeepFilesThatAreRestored(t *testing.T) {
	env := environment()
	var kept, back []string
	for _, p := range initPhases(env) {
		kept = append(kept, p.keeps...)
		if s := p.asExec(); !slices.Equal(s.Keeps, p.keeps) {
			t.Errorf("%s keeps %q", p.id, s.Keeps)
		}
	}
	files, err := kubeletFiles(env, hostOf(env, "first"))
	if err != nil {
		t.Fatal(err)
	}
	member, err := memberTask(env).Ops(&engine.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range slices.Concat(files, rerunControlPlanePhase(), member) {
		if k, ok := o.(op.BaselineFile); ok {
			back = append(back, k.Path)
		}
	}
	slices.Sort(kept)
	slices.Sort(back)
	want := []string{
		"/etc/kubernetes/manifests/etcd.yaml", "/etc/kubernetes/manifests/kube-apiserver.yaml",
		"/etc/kubernetes/manifests/kube-controller-manager.yaml",
		"/etc/kubernetes/manifests/kube-scheduler.yaml", "/var/lib/kubelet/config.yaml",
		"/var/lib/kubelet/instance-config.yaml", "/var/lib/kubelet/kubeadm-flags.env",
	}
	if d := cmp.Diff([][]string{want, want}, [][]string{kept, back}); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
