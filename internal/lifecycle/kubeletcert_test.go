package lifecycle

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/spec"
)

// signed returns the hosts whose kubelets have a serving certificate of the cluster.
func (w *world) signed() (hosts []string) {
	for _, name := range slices.Sorted(maps.Keys(w.Hosts)) {
		if m := w.Hosts[name]; m.AllState()[module.ServingCert] != "" {
			hosts = append(hosts, name)
		}
	}
	return hosts
}

// selfSigned describes a cluster whose kubelets have self-signed serving certificates, as
// in earlier versions.
func (w *world) selfSigned() *v1alpha1.Cluster {
	c := w.Manifest()
	c.Spec.Kubernetes.Kubelet.Config = map[string]any{"serverTLSBootstrap": false}
	return c
}

// fromBefore creates a cluster whose state has no setting for serving certificates of
// kubelets, as in earlier versions.
func (w *world) fromBefore() {
	w.t.Helper()
	w.do(creating(w.selfSigned()), event.Succeeded)
	setting := regexp.MustCompile(`"?serverTLSBootstrap"?: ?false`)
	err := filepath.WalkDir(w.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Base(path) == "plan.json" {
			var p plan.Plan
			if err := json.Unmarshal(text, &p); err != nil {
				return err
			}
			p.Spec = setting.ReplaceAll(p.Spec, nil)
			if text, err = json.Marshal(p); err != nil {
				return err
			}
		}
		return os.WriteFile(path, setting.ReplaceAll(text, nil), 0o600)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.selfSigns()
}

// selfSigns checks that the saved cluster has no setting for serving certificates.
func (w *world) selfSigns() {
	w.t.Helper()
	c, err := w.service().Cluster(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	if d := cmp.Diff(v1alpha1.Object{}, c.Spec.Kubernetes.Kubelet.Config, cmpopts.EquateEmpty()); d != "" {
		w.t.Errorf("saved kubelet settings (-want +got):\n%s", d)
	}
}

// TestKubeletCertificates_KeptByOtherOperations: in clusters of earlier versions, operations of another kind keep
// the serving certificates of kubelets. An applied file changes them.
func TestKubeletCertificates_KeptByOtherOperations(t *testing.T) {
	t.Parallel()
	t.Run("add a node", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		w.fromBefore()
		w.Hosts["w2"] = lifecycletest.NewHost("w2", "192.0.2.13", w.API)
		w.do(AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{w.flag("w2")}}, event.Succeeded)
		w.selfSigns()
		if d := cmp.Diff([]string(nil), w.signed()); d != "" {
			t.Errorf("kubelets with a certificate of the cluster (-want +got):\n%s", d)
		}
	})
	t.Run("upgrade with a file", func(t *testing.T) {
		built.older.Do(func() { build(t, older) })
		w := newWorld(t, "cp1", "w1")
		w.Version = older
		w.fromBefore()
		w.backable(t)
		w.Version = "v1.37.1"
		w.do(UpgradeRequest{Subject: Subject{Cluster: w.Manifest()}}, event.Succeeded)
		w.selfSigns()
	})
	t.Run("another runtime", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		w.cache = t.TempDir()
		w.bundled(t, true, "")
		w.Runtime = "containerd"
		w.fromBefore()
		request := w.moving()
		w.do(request, event.Succeeded)
		w.selfSigns()
		p := w.prepared(w.service().Prepare(t.Context(), request, nil))
		if !slices.ContainsFunc(p.Plan().Steps, func(s plan.Step) bool { return s.Task == "kubelet.serving" }) {
			t.Error("the plan of the next apply does not change serving certificates")
		}
	})
}

// TestKubeletCertificates_SignedByCluster: kubelets of a new cluster, and kubelets that join, get
// certificates of its CA.
func TestKubeletCertificates_SignedByCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1", "w2")
	all := w.Manifest()
	first := w.Manifest()
	first.Spec.Hosts = first.Spec.Hosts[:2]
	w.do(creating(first), event.Succeeded)
	if d := cmp.Diff([]string{"cp1", "w1"}, w.signed()); d != "" {
		t.Errorf("kubelets with a certificate of the cluster (-want +got):\n%s", d)
	}
	w.events = nil
	w.do(AddNodesRequest{Subject: Subject{Cluster: all, Name: "prod"}}, event.Succeeded)
	if d := cmp.Diff([]string{"w2"}, w.turns("nodes.serving")); d != "" {
		t.Errorf("the kubelets that were waited for (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"cp1", "w1", "w2"}, w.signed()); d != "" {
		t.Errorf("kubelets with a certificate of the cluster (-want +got):\n%s", d)
	}
	if job := w.Hosts["cp1"].AllState()["/etc/slipway/approve.json"]; !strings.Contains(job, `{"name":"w2","addresses":["192.0.2.13"]}`) {
		t.Errorf("the control plane would not approve the request of w2: %s", job)
	}
	w.whole()
}

// TestKubeletCertificates_ChangeOneNodeAtATime: the plan lists the change from self-signed certificates.
// Each kubelet has its certificate before the next one is changed.
func TestKubeletCertificates_ChangeOneNodeAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeAndTwo...)
	w.do(creating(w.selfSigned()), event.Succeeded)
	if got := w.signed(); len(got) > 0 {
		t.Fatalf("%v have unwanted certificates", got)
	}
	if w.Hosts["cp1"].AllState()["/etc/slipway/approve.json"] != "" {
		t.Error("the control plane approves requests of self-signed kubelets")
	}
	p := w.prepared(w.service().Prepare(t.Context(), applying(w.Manifest()), nil))
	var told []string
	for _, s := range p.Plan().Steps {
		if s.Task == "kubelet.serving" {
			told = append(told, s.Host+": "+s.Changes[0].Summary)
		}
	}
	var want []string
	for _, name := range threeAndTwo {
		want = append(want, name+": serve with a certificate signed by the cluster")
	}
	if d := cmp.Diff(want, told); d != "" {
		t.Errorf("changes of the plan (-want +got):\n%s", d)
	}
	w.events = nil
	w.apply(p, event.Succeeded)
	var order []string
	for _, e := range w.events {
		if e.Type == event.StepFinished && e.Outcome == event.Changed &&
			slices.Contains([]string{"kubelet.settings", "kubelet.serving"}, e.Task) {
			order = append(order, e.Host+" "+e.Task)
		}
	}
	want = nil
	for _, name := range threeAndTwo {
		want = append(want, name+" kubelet.settings", name+" kubelet.serving")
	}
	if d := cmp.Diff(want, order); d != "" {
		t.Errorf("one node after the other (-want +got):\n%s", d)
	}
	w.whole()
}

// TestKubeletCertificates_RefusesForeignAddress: such a request is not approved. The cluster is rolled
// back to its previous settings, and other nodes are not changed.
func TestKubeletCertificates_RefusesForeignAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1", "w2")
	w.do(creating(w.selfSigned()), event.Succeeded)
	w.Hosts["w1"].ExtraAddress = w.Hosts["cp1"].Address
	res := w.do(applying(w.Manifest()), event.Failed)
	if len(res.Failures) == 0 || !res.Reverted {
		t.Fatalf("reverted: %t, failures: %+v", res.Reverted, res.Failures)
	}
	for _, want := range []string{"csr-w1", "192.0.2.11 is not an address of node w1"} {
		if !strings.Contains(res.Failures[0].Message, want) {
			t.Errorf("%q is not in: %s", want, res.Failures[0].Message)
		}
	}
	if got := w.signed(); slices.Contains(got, "w1") || slices.Contains(got, "w2") {
		t.Errorf("%v have certificates", got)
	}
	for name := range w.Hosts {
		if strings.Contains(w.Hosts[name].AllState()[lifecycletest.KubeletDropIn], "serverTLSBootstrap: true") {
			t.Errorf("the kubelet of %s still requests certificates from the cluster", name)
		}
	}
}

// TestKubeletCertificates_ApprovesNewAddress: the kubelet requests a certificate for its new
// address. An apply approves it, although the current one has not expired.
func TestKubeletCertificates_ApprovesNewAddress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason, greedy string
		want                 event.Outcome
	}{
		{"its new address", "the request is approved", "", event.Succeeded},
		{"also a foreign address", "the failure names the pending request", "192.0.2.11", event.Failed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1", "w1")
			w.create(event.Succeeded)
			w.Hosts["w1"].CertMoved, w.Hosts["w1"].ExtraAddress = true, tc.greedy
			w.events = nil
			res := w.do(applying(w.Manifest()), tc.want)
			if tc.want == event.Failed {
				if len(res.Failures) == 0 || !strings.Contains(res.Failures[0].Message, "csr-w1") {
					t.Errorf("%s: %+v", tc.reason, res.Failures)
				}
				return
			}
			if d := cmp.Diff([]string{"w1"}, w.turns("kubelet.serving")); d != "" {
				t.Errorf("kubelets that were waited for: %s (-want +got):\n%s", tc.reason, d)
			}
			if w.Hosts["w1"].CertMoved {
				t.Error("the kubelet still serves with the certificate of the old address")
			}
			w.settled(w.Manifest())
		})
	}
}

// TestMetricsServer_CertificateIsVerified: metrics-server has a certificate that the API server
// verifies. The certificate is kept as long as it is usable.
func TestMetricsServer_CertificateIsVerified(t *testing.T) {
	t.Parallel()
	const (
		secretPath = "/api/v1/namespaces/kube-system/secrets/metrics-server-tls"
		apiPath    = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
	)
	w := newWorld(t, "cp1", "w1")
	no := false
	c := w.Manifest()
	c.Spec.Addons = []v1alpha1.Addon{{Name: "metrics-server", Wait: &no}}
	w.do(creating(c), event.Succeeded)
	trusted := func() string {
		t.Helper()
		secret, api := w.API.GetObject(secretPath), w.API.GetObject(apiPath)
		ca, _ := secret["data"].(object)["ca.crt"].(string)
		if bundle, _ := api["spec"].(object)["caBundle"].(string); bundle != ca || ca == "" {
			t.Errorf("the API server trusts %q, and the Secret has %q", bundle, ca)
		}
		return ca
	}
	empty := func() {
		t.Helper()
		p := w.prepared(w.service().Prepare(t.Context(), applying(c), nil))
		if !p.Plan().IsEmpty() {
			t.Errorf("the plan is not empty: %+v", p.Plan().Steps)
		}
	}
	first := trusted()
	empty()
	w.API.PutObject(secretPath,
		object{
			"apiVersion": "v1", "kind": "Secret",
			"metadata": object{"name": "metrics-server-tls", "namespace": "kube-system"}, "data": object{"tls.crt": "eA=="},
		})
	p := w.prepared(w.service().Prepare(t.Context(), applying(c), nil))
	text, err := json.Marshal(p.Plan())
	if err != nil || !strings.Contains(string(text), "issue the serving certificate: it cannot be read") {
		t.Errorf("the plan does not list the new certificate: %s, %v", text, err)
	}
	w.apply(p, event.Succeeded)
	if next := trusted(); next == first {
		t.Error("the API server still trusts only the old CA")
	}
	empty()
}
