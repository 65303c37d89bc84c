package lifecycle

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/pki/pkitest"
)

const (
	clusterInfoPath = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
)

// withAuthority creates a running cluster whose certificates are all signed by one CA, and
// returns its certificate.
func withAuthority(t *testing.T) (w *world, old string) {
	t.Helper()
	w = newWorld(t, "cp1", "cp2", "cp3", "w1")
	w.create(event.Succeeded)
	w.issueCertificates(200 * certDay)
	cert, key := lifecycletest.LastingAuthority(t)
	made, _ := lifecycletest.AuthoritiesMade.Load(cert)
	for _, h := range w.Manifest().Spec.Hosts {
		m := w.Hosts[h.Name]
		m.Files[caCert] = cert
		if strings.HasPrefix(h.Name, "cp") {
			m.Files[lifecycletest.CAKey] = key
		}
		for _, k := range certs.ExpectedCerts(module.Env{Cluster: w.Manifest()}, h) {
			if k.CA == caCert && m.HasFile(k.Path) && !strings.HasSuffix(k.Path, "kubelet.conf") {
				m.IssueCertificate(t, k, made.(*pkitest.Authority), certTime.Add(200*certDay))
			}
			if text := m.Files[k.Path]; strings.Contains(text, "certificate-authority-data") {
				m.Files[k.Path] = string(pki.WithKubeconfigCA([]byte(text), []byte(cert)))
			}
		}
		m.Files["/etc/kubernetes/kubelet.conf"] = pkitest.MakeKubeconfig("https://example.com:6443", cert, "", "", "")
		m.Files["/etc/kubernetes/kubelet.conf"] = strings.ReplaceAll(m.Files["/etc/kubernetes/kubelet.conf"],
			"client-certificate-data: \n    client-key-data: \n", "client-certificate: "+module.ClientCert+"\n")
		m.Admit = admits(w)
		for _, o := range []op.StaticPodRestart{
			{Manifest: "/etc/kubernetes/manifests/kube-controller-manager.yaml"},
			{Manifest: "/etc/kubernetes/manifests/kube-scheduler.yaml"},
		} {
			m.State["read by "+o.Manifest] = "what was there before"
		}
	}
	if err := w.service().Records.Kubeconfigs().Save(t.Context(), "prod", w.outside("cp1")); err != nil {
		t.Fatal(err)
	}
	w.API.ServingCert, w.API.KubeletCert = w.ServingCert, w.ServingCertFor
	w.API.PutObject(clusterInfoPath,
		object{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "cluster-info", "namespace": "kube-public"},
			"data": object{"kubeconfig": pkitest.MakeKubeconfig("https://example.com:6443", cert, "", "", "")},
		})
	w.API.PutObject(lifecycletest.PublishedCAsPath,
		object{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": object{"name": "extension-apiserver-authentication", "namespace": "kube-system"}, "data": object{"client-ca-file": cert},
		})
	w.API.PutObject(lifecycletest.RootCAPath, object{})
	w.API.PublishRootCA(cert)
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		w.Hosts[name].ReloadTrust([]string{caCert, proxyCA + ".crt"})
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		w.API.CreateWorkload(kind, strings.ToLower(kind))
	}
	w.API.CreateWorkload("Deployment", "tokenless")
	w.API.MountOnlyCA("tokenless")
	return w, cert
}

// admits plays the controller manager, which issues the client certificate of a kubelet.
// The first CA in the bundle signs it.
func admits(*world) func(*lifecycletest.Host) {
	return func(m *lifecycletest.Host) {
		text := m.Files[caCert] // the first CA signs by then
		list, err := pki.ParseAuthorities([]byte(text))
		if err != nil {
			m.API.T.Error(err)
			return
		}
		by, _ := lifecycletest.AuthoritiesMade.Load(string(list[0].Text))
		cert, key := by.(*pkitest.Authority).IssueCertificate(m.API.T, "system:node:"+m.Name, certTime.Add(certYear))
		if !m.HasFile(module.ClientCert) {
			m.Files[module.ClientCert] = cert + key
		}
	}
}

// reads returns a text in the data of an API object.
func (w *world) reads(p, key string) string {
	w.API.Mu.Lock()
	defer w.API.Mu.Unlock()
	return w.API.Objects[p]["data"].(object)[key].(string)
}

// underAnother checks that one new CA has signed all certificates and is the only trusted
// CA, and that nothing of the rotation is left.
func (w *world) underAnother(old string) {
	w.t.Helper()
	next := w.Hosts["cp1"].Files[caCert]
	if list, err := pki.ParseAuthorities([]byte(next)); err != nil || len(list) != 1 || next == old {
		w.t.Fatalf("cp1 trusts %d CAs, or the old CA: %v", len(list), err)
	}
	for _, h := range w.Manifest().Spec.Hosts {
		m := w.Hosts[h.Name]
		control := strings.HasPrefix(h.Name, "cp")
		if m.Files[caCert] != next {
			w.t.Errorf("%s trusts other CAs than cp1", h.Name)
		}
		if control && m.RejectsSigner() {
			w.t.Errorf("the controller manager of %s would not start", h.Name)
		}
		known := certs.ExpectedCerts(module.Env{Cluster: w.Manifest()}, h)
		states, err := certs.QueryCerts(w.t.Context(), &lifecycletest.Conn{Host: m}, known)
		if err != nil {
			w.t.Fatal(err)
		}
		for i, st := range states {
			if st.Foreign || st.Missing && !known[i].Optional {
				w.t.Errorf("%s of %s: foreign %t, missing %t", st.Path, h.Name, st.Foreign, st.Missing)
			}
		}
		for p, text := range m.Files { // here the etcd manifest has all settings, and it is not rewritten
			if has, err := pki.KubeconfigCA([]byte(text)); err == nil && len(has) > 0 && string(has) != next {
				w.t.Errorf("%s of %s trusts other CAs", p, h.Name)
			}
			if strings.Contains(p, "/rotate/") || p == module.SigningCert || p == facts.BootstrapConf ||
				p != "/etc/kubernetes/manifests/etcd.yaml" && strings.Contains(text, module.SigningCert) {
				w.t.Errorf("%s still has %s", h.Name, p)
			}
		}
	}
	if is := w.reads(lifecycletest.RootCAPath, "ca.crt"); is != next {
		w.t.Error("the CA bundle for pods differs")
	}
	if is, err := pki.KubeconfigCA([]byte(w.reads(clusterInfoPath, "kubeconfig"))); err != nil || string(is) != next {
		w.t.Errorf("the CA bundle for joining nodes differs: %v", err)
	}
	if is := w.reads(lifecycletest.PublishedCAsPath, "client-ca-file"); is != next {
		w.t.Error("the CA bundle for extension API servers differs")
	}
	kept, err := savedstate.ModuleState{Records: w.service().Records}.Kubeconfig(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	if is, err := pki.KubeconfigCA(kept); err != nil || string(is) != next {
		w.t.Errorf("the saved kubeconfig trusts other CAs: %v", err)
	}
	for p, o := range w.API.Objects {
		if strings.Contains(p, "/slipway-rotates-") ||
			strings.Contains(p, "/pods/") && o["metadata"].(object)["creationTimestamp"] == lifecycletest.CreatedBefore {
			w.t.Errorf("%s still exists", p)
		}
	}
	if tokens := w.API.JoinTokens(); len(tokens) > 0 {
		w.t.Errorf("%d join tokens are left", len(tokens))
	}
}

func rotateCluster() RotateCARequest {
	return RotateCARequest{Name: "prod", Names: []string{"cluster"}}
}

// TestRotateCluster_TrustsNextCABeforeUsingIt checks the order. All hosts trust both CAs before the next CA signs,
// and pods are restarted in between. The old CA is removed when no certificate needs it.
func TestRotateCluster_TrustsNextCABeforeUsingIt(t *testing.T) {
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
		{"a bare pod", "Pod default/lone-a", func(w *world, _ string) { w.API.CreateWorkload("Pod", "lone") }},
		{"a bare pod without a token", "Pod default/lone-a", func(w *world, _ string) {
			w.API.CreateWorkload("Pod", "lone")
			w.API.MountOnlyCA("lone")
		}},
		{"a bundle", "ConfigMap default/trust", func(w *world, old string) { w.API.PutObject(at, config(old)) }},
		{"a kubeconfig", "ConfigMap default/trust", func(w *world, old string) {
			w.API.PutObject(at, config(pkitest.MakeKubeconfig("https://example.com", old, "", "", "")))
		}},
		{"a webhook", "ValidatingWebhookConfiguration theirs", func(w *world, old string) {
			w.API.PutObject("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/theirs", object{
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
				if list, err := pki.ParseAuthorities([]byte(w.Hosts[name].Files[caCert])); err != nil || len(list) != 2 {
					t.Errorf("%s trusts %d CAs: %v", name, len(list), err)
				}
			}
			w.API.RemoveObject("/api/v1/namespaces/default/pods/lone-a")
			w.API.RemoveObject("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/theirs")
			if w.API.HasObject(at) { // it trusts both
				w.API.PutObject(at, config(w.Hosts["cp1"].Files[caCert]))
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
			theirs := object{"name": "theirs", "namespace": "shop"}
			w.API.PutObject(secret, object{"apiVersion": "v1", "kind": "Secret", "metadata": theirs, "data": object{
				"tls.crt": base64.StdEncoding.EncodeToString([]byte(cert)), "tls.key": base64.StdEncoding.EncodeToString([]byte(key)),
			}})
		}},
		{"a kubeconfig", "ConfigMap shop/theirs", func(w *world, cert, key string) {
			w.API.PutObject(config,
				object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "theirs", "namespace": "shop"}, "data": object{
					"kubeconfig": pkitest.MakeKubeconfig("https://example.com:6443", "", "", cert, key),
				}})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, old := withAuthority(t)
			issue := func(by string, ends time.Duration) (cert, key string) {
				made, _ := lifecycletest.AuthoritiesMade.Load(by)
				return made.(*pkitest.Authority).IssueCertificate(t, "theirs", w.Now().Add(ends))
			}
			ended, _ := issue(old, -certDay)
			w.API.PutObject("/api/v1/namespaces/shop/configmaps/ended", object{
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
				if list, err := pki.ParseAuthorities([]byte(w.Hosts[name].Files[caCert])); err != nil || len(list) != 2 ||
					string(list[1].Text) != old {
					t.Errorf("%s trusts %d CAs, want the next CA and the old CA: %v", name, len(list), err)
				}
			}
			list, err := pki.ParseAuthorities([]byte(w.Hosts["cp1"].Files[caCert]))
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

// TestRotateCluster_ReplacesCAOnceAfterKill kills the manager at the end of each step and resumes. The old
// CA is replaced exactly once.
func TestRotateCluster_ReplacesCAOnceAfterKill(t *testing.T) {
	w, old := withAuthority(t)
	w.killedExchange(t, rotateCluster(), module.NextCA, caCert, (*world).unwatched, func(k *world) { k.underAnother(old) })
}

// TestRotateCluster_FinishesInterruptedCleanup finishes a rotation that was interrupted between the removal
// of the next CA's temporary key and the removal of its certificate.
func TestRotateCluster_FinishesInterruptedCleanup(t *testing.T) {
	t.Parallel()
	w, old := withAuthority(t)
	w.do(rotateCluster(), event.Succeeded)
	m := w.Hosts["cp1"]
	is := m.Files[caCert]
	m.Files[module.NextCA] = is
	w.do(rotateCluster(), event.Succeeded)
	w.underAnother(old)
	if m.Files[caCert] != is {
		t.Error("it was rotated twice")
	}
}

// cutOff returns the worlds that a kill before each operation of a step on a host leaves.
func (w *world) cutOff(r Request, step, host string) (out []*world) {
	w.t.Helper()
	w.Hosts[host].OnChange = func(what string) {
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
		{
			"cluster", caCert, lifecycletest.CAKey, rotateCluster(),
			func(t *testing.T) *world { w, _ := withAuthority(t); return w }, (*world).underAnother,
		},
		{"front-proxy", proxyCA + ".crt", proxyCA + ".key", rotateFrontProxy(), trusted, (*world).proxies},
		{
			"etcd", module.EtcdCA, lifecycletest.EtcdCAKey, rotateEtcd(),
			func(t *testing.T) *world { return withEtcd(t, etcdShapes["stacked"]...) }, (*world).etcdExchanged,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := tc.world(t)
			old, broken := w.Hosts["cp1"].Files[tc.cert], 0
			apart := func(m *lifecycletest.Host) bool {
				return pki.ReadState(m.ReadFile, op.CertificateFile{Path: tc.cert, Key: tc.key}).OtherKey || tc.name == "cluster" && m.RejectsSigner()
			}
			for _, k := range w.cutOff(tc.request, "rotate."+tc.name+".sign", "cp2") {
				m := k.Hosts["cp2"]
				if apart(m) {
					broken++
					m.OnChange = func(what string) {
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

// TestRotateCluster_KeepsCABundleDuringApply checks that an apply during a rotation does not change the CA
// bundle of a control plane. All controller managers can still start.
func TestRotateCluster_KeepsCABundleDuringApply(t *testing.T) {
	t.Parallel()
	for _, step := range []string{certs.StepTrusted, certs.StepDropped} {
		w, old := withAuthority(t)
		k := w.cutOff(rotateCluster(), step, "cp2")[0]
		c := k.changed()
		before := k.Hosts["cp2"].Files[caCert]
		k.do(applying(c), event.Succeeded)
		for _, name := range []string{"cp1", "cp2", "cp3"} {
			if k.Hosts[name].RejectsSigner() {
				t.Errorf("%s: the controller manager of %s would not start", step, name)
			}
		}
		if k.Hosts["cp2"].Files[caCert] != before {
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
	k.Hosts["cp2"].Files = maps.Clone(after.Hosts["cp2"].Files)
	k.do(applying(k.changed()), event.Succeeded)
	k.do(rotateCluster(), event.Succeeded)
	k.underAnother(old)
}

// TestRotateCluster_RestartsAPIServersThatVerifyKubelets checks API servers that verify kubelets with the cluster CA,
// which they read at startup. They restart before a kubelet uses a certificate of the next
// CA, and again when only the next CA is left. Other API servers are not restarted.
func TestRotateCluster_RestartsAPIServersThatVerifyKubelets(t *testing.T) {
	t.Parallel()
	w, old := withAuthority(t)
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		m := w.Hosts[name]
		m.State["read by "+module.APIServerManifest] = "what was there before"
		if name != "cp3" {
			m.Files[module.APIServerManifest] += "    - --kubelet-certificate-authority=" + caCert + "\n"
		}
	}
	has := func(name string) bool {
		m := w.Hosts[name]
		return m.State["read by "+module.APIServerManifest] == m.HashInputs(op.StaticPodRestart{Files: []string{caCert}})
	}
	w.Hosts["w1"].OnChange = func(what string) {
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
	delete(w.Hosts["cp3"].Files, module.ClientCert)
	delete(w.Hosts["cp3"].Files, caCert)
	p := w.prepared(w.service().Prepare(t.Context(), rotateCluster(), nil))
	for _, s := range p.Plan().Steps {
		if s.Host == "cp3" {
			t.Errorf("the plan has %q on cp3", s.Title)
		}
	}
}

// A rotation is refused if a host is down, a CA bundle is missing or damaged, or another
// rotation is requested with it.
func TestRotateCluster_RefusesImpossibleRotation(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*world, *RotateCARequest){
		"a worker is down":             func(w *world, r *RotateCARequest) { w.Hosts["w1"].Down, r.IgnoreErrors = errDown, true },
		"a control plane lacks the CA": func(w *world, _ *RotateCARequest) { delete(w.Hosts["cp2"].Files, caCert) },
		"a CA bundle cannot be read": func(w *world, _ *RotateCARequest) {
			w.Hosts["cp2"].Files[caCert] = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
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
	for _, m := range w.Hosts {
		m.Files[caCert] = over.Cert
		if m.HasFile(strings.TrimSuffix(caCert, ".crt") + ".key") {
			m.Files[strings.TrimSuffix(caCert, ".crt")+".key"] = over.Key
		}
	}
	_, err := w.service().Prepare(t.Context(), rotateCluster(), nil)
	wantRefused(t, err, op.IDAuthorityExpired)
	// The reason must not be that the CA cannot sign, which is checked later.
	if err != nil && !strings.Contains(err.Error(), "the CA in "+caCert+" expired on ") {
		t.Errorf("the error is %v", err)
	}
}
