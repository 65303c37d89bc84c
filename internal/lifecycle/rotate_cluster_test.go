package lifecycle

import (
	"crypto/tls"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/pki/pkitest"
)

const (
	caCrt, caKey    = "/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/pki/ca.key"
	rootCAPath      = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"
	clusterInfoPath = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
)

// authoritiesMade holds the CAs of all tests, by certificate. The process that made one
// may have been killed since.
var authoritiesMade sync.Map

// lastingAuthority returns a CA that is valid on any date of a test run.
func lastingAuthority(t testing.TB) (cert, key string) {
	a := pkitest.NewAuthority(t, "kubernetes", time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
	authoritiesMade.Store(a.Cert, a)
	return a.Cert, a.Key
}

// shown returns a serving certificate for the API servers. Its CA is the CA of the first
// reachable control plane.
func (w *world) shown() *tls.Certificate { return w.shownBy("example.com") }

// shownBy returns a serving certificate for a name or an address.
func (w *world) shownBy(name string) *tls.Certificate {
	m := w.machines["cp1"]
	if m.down != nil {
		m = w.machines["cp2"]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	leaf, err := pki.ParseCertificate([]byte(m.files["/etc/kubernetes/pki/apiserver.crt"]))
	if err != nil {
		w.t.Error(err)
		return nil
	}
	var out *tls.Certificate
	authoritiesMade.Range(func(text, by any) bool {
		ca, err := pki.ParseCertificate([]byte(text.(string)))
		if err != nil || leaf.CheckSignatureFrom(ca) != nil {
			return true
		}
		cert, key := by.(*pkitest.Authority).IssueCertificate(w.t, name, ca.NotAfter)
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		if err != nil {
			w.t.Error(err)
		}
		out = &pair
		return false
	})
	return out
}

// tell plays a controller manager that publishes the CA bundle in namespaces.
func (a *api) tell(text string) {
	if a.has(rootCAPath) {
		a.put(rootCAPath,
			object{
				"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": object{"name": "kube-root-ca.crt", "namespace": "default"}, "data": object{"ca.crt": text},
			})
	}
}

// withoutToken makes a pod mount the CA bundle and no token.
func (a *api) withoutToken(name string) {
	at := "/api/v1/namespaces/default/pods/" + name + "-a"
	a.put(at,
		merge(a.objects[at], object{"spec": object{"volumes": []any{object{"name": "ca", "configMap": object{"name": "kube-root-ca.crt"}}}}}))
}

// rejects reports whether a controller manager would not start, because its signing
// certificate does not match the CA key. Machines of other tests have no real files.
func (m *machine) rejects() bool {
	file := caCrt
	if strings.Contains(m.files[module.APIServerManifest], module.SigningCert) {
		file = module.SigningCert
	}
	list, err := pki.ParseAuthorities([]byte(m.files[file]))
	key, failed := pki.ParseKey([]byte(m.files[caKey]))
	if err != nil || failed != nil {
		return file == module.SigningCert
	}
	cert, err := pki.ParseCertificate(list[0].Text)
	return err != nil || len(list) != 1 || !pki.IsPair(cert, key)
}

// withAuthority creates a running cluster whose certificates are all signed by one CA, and
// returns its certificate.
func withAuthority(t *testing.T) (w *world, old string) {
	t.Helper()
	w = newWorld(t, "cp1", "cp2", "cp3", "w1")
	w.create(event.Succeeded)
	w.certified(200 * certDay)
	cert, key := lastingAuthority(t)
	made, _ := authoritiesMade.Load(cert)
	for _, h := range w.cluster().Spec.Hosts {
		m := w.machines[h.Name]
		m.files[caCrt] = cert
		if strings.HasPrefix(h.Name, "cp") {
			m.files[caKey] = key
		}
		for _, k := range certs.ExpectedCerts(module.Env{Cluster: w.cluster()}, h) {
			if k.CA == caCrt && m.has(k.Path) && !strings.HasSuffix(k.Path, "kubelet.conf") {
				m.certify(t, k, made.(*pkitest.Authority), certTime.Add(200*certDay))
			}
			if text := m.files[k.Path]; strings.Contains(text, "certificate-authority-data") {
				m.files[k.Path] = string(pki.WithKubeconfigCA([]byte(text), []byte(cert)))
			}
		}
		m.files["/etc/kubernetes/kubelet.conf"] = pkitest.MakeKubeconfig("https://example.com:6443", cert, "", "", "")
		m.files["/etc/kubernetes/kubelet.conf"] = strings.ReplaceAll(m.files["/etc/kubernetes/kubelet.conf"],
			"client-certificate-data: \n    client-key-data: \n", "client-certificate: "+module.ClientCert+"\n")
		m.admit = admits(w)
		for _, o := range []op.StaticPodRestart{
			{Manifest: "/etc/kubernetes/manifests/kube-controller-manager.yaml"},
			{Manifest: "/etc/kubernetes/manifests/kube-scheduler.yaml"},
		} {
			m.state["read by "+o.Manifest] = "what was there before"
		}
	}
	if err := w.service().Store.Kubeconfigs().Save("prod", w.outside("cp1")); err != nil {
		t.Fatal(err)
	}
	w.api.shows, w.api.kubeletShows = w.shown, w.shownBy
	w.api.put(clusterInfoPath,
		object{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "cluster-info", "namespace": "kube-public"},
			"data": object{"kubeconfig": pkitest.MakeKubeconfig("https://example.com:6443", cert, "", "", "")},
		})
	w.api.put(publishedAt,
		object{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": object{"name": "extension-apiserver-authentication", "namespace": "kube-system"}, "data": object{"client-ca-file": cert},
		})
	w.api.put(rootCAPath, object{})
	w.api.tell(cert)
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		w.machines[name].believes([]string{caCrt, proxyCA + ".crt"})
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		w.api.workload(kind, strings.ToLower(kind))
	}
	w.api.workload("Deployment", "tokenless")
	w.api.withoutToken("tokenless")
	return w, cert
}

// admits plays the controller manager, which issues the client certificate of a kubelet.
// The first CA in the bundle signs it.
func admits(*world) func(*machine) {
	return func(m *machine) {
		text := m.files[caCrt] // the first CA signs by then
		list, err := pki.ParseAuthorities([]byte(text))
		if err != nil {
			m.api.t.Error(err)
			return
		}
		by, _ := authoritiesMade.Load(string(list[0].Text))
		cert, key := by.(*pkitest.Authority).IssueCertificate(m.api.t, "system:node:"+m.name, certTime.Add(certYear))
		if !m.has(module.ClientCert) {
			m.files[module.ClientCert] = cert + key
		}
	}
}

// reads returns a text in the data of an API object.
func (w *world) reads(p, key string) string {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	return w.api.objects[p]["data"].(object)[key].(string)
}

// underAnother checks that one new CA has signed all certificates and is the only trusted
// CA, and that nothing of the rotation is left.
func (w *world) underAnother(old string) {
	w.t.Helper()
	next := w.machines["cp1"].files[caCrt]
	if list, err := pki.ParseAuthorities([]byte(next)); err != nil || len(list) != 1 || next == old {
		w.t.Fatalf("cp1 trusts %d CAs, or the old CA: %v", len(list), err)
	}
	for _, h := range w.cluster().Spec.Hosts {
		m := w.machines[h.Name]
		control := strings.HasPrefix(h.Name, "cp")
		if m.files[caCrt] != next {
			w.t.Errorf("%s trusts other CAs than cp1", h.Name)
		}
		if control && m.rejects() {
			w.t.Errorf("the controller manager of %s would not start", h.Name)
		}
		known := certs.ExpectedCerts(module.Env{Cluster: w.cluster()}, h)
		states, err := certs.QueryCerts(w.t.Context(), &conn{machine: m}, known)
		if err != nil {
			w.t.Fatal(err)
		}
		for i, st := range states {
			if st.Foreign || st.Missing && !known[i].Optional {
				w.t.Errorf("%s of %s: foreign %t, missing %t", st.Path, h.Name, st.Foreign, st.Missing)
			}
		}
		for p, text := range m.files { // here the etcd manifest has all settings, and it is not rewritten
			if has, err := pki.KubeconfigCA([]byte(text)); err == nil && len(has) > 0 && string(has) != next {
				w.t.Errorf("%s of %s trusts other CAs", p, h.Name)
			}
			if strings.Contains(p, "/rotate/") || p == module.SigningCert || p == facts.BootstrapConf ||
				p != "/etc/kubernetes/manifests/etcd.yaml" && strings.Contains(text, module.SigningCert) {
				w.t.Errorf("%s still has %s", h.Name, p)
			}
		}
	}
	if is := w.reads(rootCAPath, "ca.crt"); is != next {
		w.t.Error("the CA bundle for pods differs")
	}
	if is, err := pki.KubeconfigCA([]byte(w.reads(clusterInfoPath, "kubeconfig"))); err != nil || string(is) != next {
		w.t.Errorf("the CA bundle for joining nodes differs: %v", err)
	}
	if is := w.reads(publishedAt, "client-ca-file"); is != next {
		w.t.Error("the CA bundle for extension API servers differs")
	}
	kept, err := clusterState{w.service().Store}.Kubeconfig("prod")
	if err != nil {
		w.t.Fatal(err)
	}
	if is, err := pki.KubeconfigCA(kept); err != nil || string(is) != next {
		w.t.Errorf("the saved kubeconfig trusts other CAs: %v", err)
	}
	for p, o := range w.api.objects {
		if strings.Contains(p, "/slipway-rotates-") ||
			strings.Contains(p, "/pods/") && o["metadata"].(object)["creationTimestamp"] == madeBefore {
			w.t.Errorf("%s still exists", p)
		}
	}
	if tokens := w.api.tokens(); len(tokens) > 0 {
		w.t.Errorf("%d join tokens are left", len(tokens))
	}
}

func rotateCluster() RotateCARequest {
	return RotateCARequest{Name: "prod", Names: []string{"cluster"}}
}

// TestRotateCluster checks the order. All hosts trust both CAs before the next CA signs,
// and pods are restarted in between. The old CA is removed when no certificate needs it.
func TestRotateCluster(t *testing.T) {
	t.Parallel()
	w, old := withAuthority(t)
	res := w.do(rotateCluster(), event.Succeeded)
	w.underAnother(old)
	var order []string
	for _, e := range w.events {
		if e.Type == event.StepFinished && e.Outcome == event.Changed &&
			(strings.HasPrefix(e.Task, "rotate.") || strings.HasPrefix(e.Task, "readmit.k")) && !slices.Contains(order, e.Task) {
			order = append(order, e.Task)
		}
	}
	want := []string{
		"rotate.cluster.make", "rotate.cluster.trust", "rotate.cluster.nodes", "rotate.cluster.publish",
		"rotate.cluster.pods", "rotate.cluster.sign",
		"readmit.kubelet", "rotate.cluster.needed", "rotate.cluster.drop", "rotate.cluster.drop-nodes",
		"rotate.cluster.settle", "rotate.cluster.mark", "rotate.cluster.end",
	}
	if !slices.Equal(order, want) {
		t.Errorf("the order is %s", order)
	}
	if len(res.Ready) == 0 {
		t.Error("the result is empty")
	}
	w.wantStatus(v1alpha1.PhaseRunning, "rotate-ca Succeeded", "create Succeeded")
}

// TestRotateCluster_StopsForOldTrust checks that an object that trusts only the old CA stops
// the rotation. An object that trusts both CAs does not.
func TestRotateCluster_StopsForOldTrust(t *testing.T) {
	t.Parallel()
	config := func(text string) object {
		return object{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "trust", "namespace": "default"},
			"data": object{"a": text},
		}
	}
	const at = "/api/v1/namespaces/default/configmaps/trust"
	for _, tc := range []struct {
		name, says string
		put        func(w *world, old string)
	}{
		{"a bare pod", "Pod default/lone-a", func(w *world, _ string) { w.api.workload("Pod", "lone") }},
		{"a bare pod without a token", "Pod default/lone-a", func(w *world, _ string) {
			w.api.workload("Pod", "lone")
			w.api.withoutToken("lone")
		}},
		{"a bundle", "ConfigMap default/trust", func(w *world, old string) { w.api.put(at, config(old)) }},
		{"a kubeconfig", "ConfigMap default/trust", func(w *world, old string) {
			w.api.put(at, config(pkitest.MakeKubeconfig("https://example.com", old, "", "", "")))
		}},
		{"a webhook", "ValidatingWebhookConfiguration theirs", func(w *world, old string) {
			w.api.put("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/theirs", object{
				"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": object{"name": "theirs"},
				"webhooks": []any{object{"name": "a", "clientConfig": object{"caBundle": base64.StdEncoding.EncodeToString([]byte(old))}}},
			})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, old := withAuthority(t)
			tc.put(w, old)
			res := w.do(rotateCluster(), event.Failed)
			if f := res.Failures[0]; f.Reason != op.IDCAStillNeeded || !strings.Contains(f.Message, tc.says) {
				t.Errorf("%+v", f)
			}
			for _, name := range []string{"cp1", "cp2", "cp3", "w1"} {
				if list, err := pki.ParseAuthorities([]byte(w.machines[name].files[caCrt])); err != nil || len(list) != 2 {
					t.Errorf("%s trusts %d CAs: %v", name, len(list), err)
				}
			}
			w.api.remove("/api/v1/namespaces/default/pods/lone-a")
			w.api.remove("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/theirs")
			if w.api.has(at) { // it trusts both
				w.api.put(at, config(w.machines["cp1"].files[caCrt]))
			}
			w.resume(event.Succeeded)
			w.underAnother(old)
		})
	}
}

// TestRotateCluster_KeepsCAForValidCertificates checks a valid certificate of the old CA in an
// API object. The old CA is kept for it, but only after the next CA can sign. Expired
// certificates are ignored.
func TestRotateCluster_KeepsCAForValidCertificates(t *testing.T) {
	t.Parallel()
	const secret, config = "/api/v1/namespaces/shop/secrets/theirs", "/api/v1/namespaces/shop/configmaps/theirs"
	for _, tc := range []struct {
		name, says string
		put        func(w *world, cert, key string)
	}{
		{"a Secret", "Secret shop/theirs", func(w *world, cert, key string) {
			w.api.put(secret, object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "theirs", "namespace": "shop"}, "data": object{
				"tls.crt": base64.StdEncoding.EncodeToString([]byte(cert)), "tls.key": base64.StdEncoding.EncodeToString([]byte(key)),
			}})
		}},
		{"a kubeconfig", "ConfigMap shop/theirs", func(w *world, cert, key string) {
			w.api.put(config,
				object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "theirs", "namespace": "shop"}, "data": object{
					"kubeconfig": pkitest.MakeKubeconfig("https://example.com:6443", "", "", cert, key),
				}})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, old := withAuthority(t)
			issue := func(by string, ends time.Duration) (cert, key string) {
				made, _ := authoritiesMade.Load(by)
				return made.(*pkitest.Authority).IssueCertificate(t, "theirs", w.now().Add(ends))
			}
			ended, _ := issue(old, -certDay)
			w.api.put("/api/v1/namespaces/shop/configmaps/ended", object{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "ended", "namespace": "shop"}, "data": object{"tls.crt": ended},
			})
			cert, key := issue(old, certDay)
			tc.put(w, cert, key)
			res := w.do(rotateCluster(), event.Failed)
			if f := res.Failures[0]; f.Task != "rotate.cluster.needed" || f.Reason != op.IDCAStillNeeded ||
				!strings.HasSuffix(f.Message, " are in "+tc.says) {
				t.Errorf("%+v", f)
			}
			for _, name := range []string{"cp1", "cp2", "cp3", "w1"} {
				if list, err := pki.ParseAuthorities([]byte(w.machines[name].files[caCrt])); err != nil || len(list) != 2 ||
					string(list[1].Text) != old {
					t.Errorf("%s trusts %d CAs, want the next CA and the old CA: %v", name, len(list), err)
				}
			}
			list, err := pki.ParseAuthorities([]byte(w.machines["cp1"].files[caCrt]))
			if err != nil {
				t.Fatal(err)
			}
			cert, key = issue(string(list[0].Text), certDay) // the next CA can sign by now
			tc.put(w, cert, key)
			w.resume(event.Succeeded)
			w.underAnother(old)
		})
	}
}

// TestKilledRotateCluster kills the manager at the end of each step and resumes. The old
// CA is replaced exactly once.
func TestKilledRotateCluster(t *testing.T) {
	w, old := withAuthority(t)
	w.killedExchange(t, rotateCluster(), module.NextCA, caCrt, (*world).unwatched, func(k *world) { k.underAnother(old) })
}

// TestRotateClusterForgotten finishes a rotation that was interrupted between the removal
// of the next CA's temporary key and the removal of its certificate.
func TestRotateClusterForgotten(t *testing.T) {
	t.Parallel()
	w, old := withAuthority(t)
	w.do(rotateCluster(), event.Succeeded)
	m := w.machines["cp1"]
	is := m.files[caCrt]
	m.files[module.NextCA] = is
	w.do(rotateCluster(), event.Succeeded)
	w.underAnother(old)
	if m.files[caCrt] != is {
		t.Error("it was rotated twice")
	}
}

// cutOff returns the worlds that a kill before each operation of a step on a host leaves.
func (w *world) cutOff(r Request, step, host string) (out []*world) {
	w.t.Helper()
	w.machines[host].touched = func(what string) {
		if strings.HasPrefix(what, step+" ") {
			out = append(out, w.fork(w.t))
		}
	}
	w.do(r, event.Succeeded)
	if len(out) < 2 {
		w.t.Fatalf("%d moments of %s on %s", len(out), step, host)
	}
	return out
}

// TestRotate_RepairsKeyPairOnResume interrupts a host while it takes over the key of the next
// CA. A resume makes key and certificate match at once, not only when it is the host's turn to
// sign.
func TestRotate_RepairsKeyPairOnResume(t *testing.T) {
	for _, tc := range []struct {
		name, cert, key string
		request         Request
		world           func(*testing.T) *world
		exchanged       func(w *world, old string)
	}{
		{"cluster", caCrt, caKey, rotateCluster(), func(t *testing.T) *world { w, _ := withAuthority(t); return w }, (*world).underAnother},
		{"front-proxy", proxyCA + ".crt", proxyCA + ".key", rotateFrontProxy(), trusted, (*world).proxies},
		{
			"etcd", module.EtcdCA, etcdCAKey, rotateEtcd(),
			func(t *testing.T) *world { return withEtcd(t, etcdShapes["stacked"]...) }, (*world).etcdExchanged,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := tc.world(t)
			old, broken := w.machines["cp1"].files[tc.cert], 0
			apart := func(m *machine) bool {
				return pki.ReadState(m.read, op.CertificateFile{Path: tc.cert, Key: tc.key}).OtherKey || tc.name == "cluster" && m.rejects()
			}
			for _, k := range w.cutOff(tc.request, "rotate."+tc.name+".sign", "cp2") {
				m := k.machines["cp2"]
				if apart(m) {
					broken++
					m.touched = func(what string) {
						if strings.HasPrefix(what, "rotate."+tc.name+".sign ") && apart(m) {
							t.Errorf("before %s, key and certificate do not match", what)
						}
					}
				}
				k.resume(event.Succeeded)
				tc.exchanged(k, old)
			}
			if broken == 0 {
				t.Error("key and CA match at every moment")
			}
		})
	}
}

// TestRotateClusterApply checks that an apply during a rotation does not change the CA
// bundle of a control plane. All controller managers can still start.
func TestRotateClusterApply(t *testing.T) {
	t.Parallel()
	for _, step := range []string{certs.StepTrusted, certs.StepDropped} {
		w, old := withAuthority(t)
		k := w.cutOff(rotateCluster(), step, "cp2")[0]
		c := k.changed()
		before := k.machines["cp2"].files[caCrt]
		k.do(applying(c), event.Succeeded)
		for _, name := range []string{"cp1", "cp2", "cp3"} {
			if k.machines[name].rejects() {
				t.Errorf("%s: the controller manager of %s would not start", step, name)
			}
		}
		if k.machines["cp2"].files[caCrt] != before {
			t.Errorf("%s: an apply changed the CA bundle of cp2", step)
		}
		k.do(rotateCluster(), event.Succeeded)
		k.underAnother(old)
	}
}

// The saved kubeconfig trusts only the next CA in the end. This also holds if it was saved
// from a first control plane that still trusted both CAs.
func TestRotateCluster_SavedKubeconfigTrustsNextCA(t *testing.T) {
	t.Parallel()
	w, old := withAuthority(t)
	k := w.cutOff(rotateCluster(), certs.StepDropped, "cp1")[0]
	after := k.fork(t)
	after.do(rotateCluster(), event.Succeeded)
	k.machines["cp2"].files = maps.Clone(after.machines["cp2"].files)
	k.do(applying(k.changed()), event.Succeeded)
	k.do(rotateCluster(), event.Succeeded)
	k.underAnother(old)
}

// TestRotateClusterKubelets checks API servers that verify kubelets with the cluster CA,
// which they read at startup. They restart before a kubelet uses a certificate of the next
// CA, and again when only the next CA is left. Other API servers are not restarted.
func TestRotateClusterKubelets(t *testing.T) {
	t.Parallel()
	w, old := withAuthority(t)
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		m := w.machines[name]
		m.state["read by "+module.APIServerManifest] = "what was there before"
		if name != "cp3" {
			m.files[module.APIServerManifest] += "    - --kubelet-certificate-authority=" + caCrt + "\n"
		}
	}
	has := func(name string) bool {
		m := w.machines[name]
		return m.state["read by "+module.APIServerManifest] == m.content(op.StaticPodRestart{Files: []string{caCrt}})
	}
	w.machines["w1"].touched = func(what string) {
		if strings.HasPrefix(what, "readmit.kubelet ") && (!has("cp1") || !has("cp2")) {
			t.Errorf("before %s: an API server does not trust kubelets of the next CA", what)
		}
	}
	w.do(rotateCluster(), event.Succeeded)
	w.underAnother(old)
	if !has("cp1") || !has("cp2") {
		t.Error("an API server still trusts kubelets of the old CA")
	}
	if has("cp3") {
		t.Error("an API server that does not need a restart was restarted")
	}
}

// TestRotateCluster_SkipsJoiningNode checks that a node that has not joined yet is left to its
// join.
func TestRotateCluster_SkipsJoiningNode(t *testing.T) {
	t.Parallel()
	w, _ := withAuthority(t)
	delete(w.machines["cp3"].files, module.ClientCert)
	delete(w.machines["cp3"].files, caCrt)
	p := w.prepared(w.service().Prepare(t.Context(), rotateCluster(), nil))
	for _, s := range p.Plan().Steps {
		if s.Host == "cp3" {
			t.Errorf("the plan has %q on cp3", s.Title)
		}
	}
}

// TestRotateClusterRefused checks that a rotation that is not possible is refused before
// anything is touched.
func TestRotateClusterRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*world, *RotateCARequest){
		"a worker is down":             func(w *world, r *RotateCARequest) { w.machines["w1"].down, r.IgnoreErrors = errDown, true },
		"a control plane lacks the CA": func(w *world, _ *RotateCARequest) { delete(w.machines["cp2"].files, caCrt) },
		"a CA bundle cannot be read": func(w *world, _ *RotateCARequest) {
			w.machines["cp2"].files[caCrt] = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
		},
		"another rotation is requested too": func(_ *world, r *RotateCARequest) { r.Names = append(r.Names, "service-account") },
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := withAuthority(t)
			r := rotateCluster()
			change(w, &r)
			if p, err := w.service().Prepare(t.Context(), r, nil); err == nil {
				t.Error("it was not refused", p.Close())
			}
		})
	}
}

// TestRotateCluster_RefusesExpiredCA checks that the rotation of an expired CA is refused.
func TestRotateCluster_RefusesExpiredCA(t *testing.T) {
	t.Parallel()
	w, _ := withAuthority(t)
	over := pkitest.NewAuthority(t, "kubernetes", certTime.Add(-2*certYear), certTime.Add(-time.Hour))
	for _, m := range w.machines {
		m.files[caCrt] = over.Cert
		if m.has(strings.TrimSuffix(caCrt, ".crt") + ".key") {
			m.files[strings.TrimSuffix(caCrt, ".crt")+".key"] = over.Key
		}
	}
	_, err := w.service().Prepare(t.Context(), rotateCluster(), nil)
	wantRefused(t, err, op.IDAuthorityExpired)
	// The reason must not be that the CA cannot sign, which is checked later.
	if err != nil && !strings.Contains(err.Error(), "the CA in "+caCrt+" expired on ") {
		t.Errorf("the error is %v", err)
	}
}
