package lifecycle

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/pki/pkitest"
)

const (
	proxyCA     = "/etc/kubernetes/pki/front-proxy-ca"
	proxyClient = "/etc/kubernetes/pki/front-proxy-client"
	publishedAt = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
)

// newAuthority makes one.
func newAuthority(t testing.TB, name string) (key, cert string) {
	a := pkitest.NewAuthority(t, name, certTime, certTime.Add(10*certYear))
	return a.Key, a.Cert
}

// bundles are the contents of files.
func (m *machine) bundles(files []string) string {
	var all []string
	for _, f := range files {
		all = append(all, m.files[f])
	}
	return hash(all...)
}

// believes plays an API server that has read its bundles: it adds to what is
// published, and takes nothing out.
func (m *machine) believes(files []string) {
	m.state["trusts"] = m.bundles(files)
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	was, _ := m.api.objects[publishedAt]["data"].(object)
	text, _ := was["requestheader-client-ca-file"].(string)
	list, err := pki.ParseAuthorities([]byte(text + m.files[proxyCA+".crt"]))
	if err != nil {
		m.api.t.Errorf("%s is told to trust what is no authority: %v", m.name, err)
	}
	others := "others"
	if theirs, _ := was["client-ca-file"].(string); strings.Contains(theirs, "BEGIN") {
		known, err := pki.ParseAuthorities([]byte(theirs + m.files["/etc/kubernetes/pki/ca.crt"]))
		if err != nil {
			m.api.t.Errorf("%s is told to trust what is no authority: %v", m.name, err)
		}
		others = string(pki.BundleCAs(known...))
	}
	m.api.objects[publishedAt] = object{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "extension-apiserver-authentication", "namespace": "kube-system"},
		"data": object{"requestheader-client-ca-file": string(pki.BundleCAs(list...)), "client-ca-file": others},
	}
}

// trusted has a cluster run with real certificates, whose API servers have read
// what they trust.
func trusted(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, "cp1", "cp2", "cp3", "w1")
	w.create(event.Succeeded)
	w.certified(300 * certDay)
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		w.machines[name].believes([]string{"/etc/kubernetes/pki/ca.crt", proxyCA + ".crt"})
	}
	return w
}

// proxies wants all control planes to have one authority of the front proxy, to
// trust that alone, and nothing to be left of the exchange.
func (w *world) proxies(from string) {
	w.t.Helper()
	first := w.machines["cp1"]
	key, err := pki.ParseKey([]byte(first.files[proxyCA+".key"]))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		m := w.machines[name]
		ca, err := pki.ParseCertificate([]byte(m.files[proxyCA+".crt"]))
		if err != nil || m.files[proxyCA+".crt"] == from || m.files[proxyCA+".crt"] != first.files[proxyCA+".crt"] ||
			strings.Count(m.files[proxyCA+".crt"], "BEGIN") != 1 {
			w.t.Errorf("%s trusts\n%s%v", name, m.files[proxyCA+".crt"], err)
			continue
		}
		if m.files[proxyCA+".key"] != first.files[proxyCA+".key"] || !pki.IsPair(ca, key) {
			w.t.Errorf("%s cannot sign with it", name)
		}
		leaf, err := pki.ParseCertificate([]byte(m.files[proxyClient+".crt"]))
		if err != nil || leaf.CheckSignatureFrom(ca) != nil {
			w.t.Errorf("what %s shows is not signed by it: %v", name, err)
		}
		if m.state["loaded "+proxyClient+".crt"] != m.files[proxyClient+".crt"] {
			w.t.Errorf("nobody has seen that the API server of %s has read what it shows", name)
		}
		for path := range m.files {
			if strings.Contains(path, "/rotate/") {
				w.t.Errorf("%s has %s yet", name, path)
			}
		}
	}
	if now := w.api.objects[publishedAt]["data"].(object); now["requestheader-client-ca-file"] != first.files[proxyCA+".crt"] ||
		now["client-ca-file"] != "others" {
		w.t.Errorf("published is\n%v", now)
	}
}

func rotateFrontProxy() Request {
	return Request{Kind: operation.RotateCA, Name: "prod", Rotate: []string{certs.FrontProxy}}
}

// TestRotateFrontProxy: all trust both authorities before any shows a certificate of
// the next, and all show one before the old one goes.
func TestRotateFrontProxy(t *testing.T) {
	w := trusted(t)
	from, shows := w.machines["cp1"].files[proxyCA+".crt"], w.machines["cp1"].files[proxyClient+".key"]
	res := w.do(rotateFrontProxy(), event.Succeeded)
	w.proxies(from)
	if w.machines["cp1"].files[proxyClient+".key"] != shows {
		t.Error("its key is another: between two files there is a moment in which they do not belong together")
	}
	var order []string
	for _, e := range w.events {
		if e.Type == event.StepFinished && e.Outcome == event.Changed && strings.HasPrefix(e.Task, "rotate.") &&
			!slices.Contains(order, strings.TrimPrefix(e.Task, "rotate.front-proxy.")) {
			order = append(order, strings.TrimPrefix(e.Task, "rotate.front-proxy."))
		}
	}
	if got := strings.Join(order, " "); got != "make trust sign drop withdraw end" {
		t.Errorf("the order is %s", got)
	}
	if len(res.Ready) == 0 {
		t.Error("it says nothing")
	}
	w.wantStatus(v1alpha1.PhaseRunning, "rotate-ca Succeeded", "create Succeeded")
	for _, d := range w.checked(0).Warnings {
		t.Errorf("%+v", d)
	}
}

// TestRotateFrontProxyHeld: as long as an API does not answer to who shows a
// certificate of the next authority, the old one stays, and it is named.
func TestRotateFrontProxyHeld(t *testing.T) {
	t.Parallel()
	w := trusted(t)
	from := w.machines["cp1"].files[proxyCA+".crt"]
	const at = "/apis/apiregistration.k8s.io/v1/apiservices/"
	w.api.put(at+"v1.apps",
		object{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": object{"name": "v1.apps"},
			"spec": object{"group": "apps", "version": "v1"},
		})
	w.api.put(at+"v1beta1.metrics.k8s.io", object{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": object{"name": "v1beta1.metrics.k8s.io"},
		"spec": object{"group": "metrics.k8s.io", "version": "v1beta1", "service": object{"name": "metrics-server", "namespace": "kube-system"}},
	})
	res := w.do(rotateFrontProxy(), event.Failed)
	if f := res.Failures[0]; f.Reason != op.IDAuthorityHeld || !strings.Contains(f.Message, "v1beta1.metrics.k8s.io") ||
		strings.Contains(f.Message, "v1.apps") {
		t.Errorf("%+v", f)
	}
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		if trusted, err := pki.ParseAuthorities([]byte(w.machines[name].files[proxyCA+".crt"])); err != nil || len(trusted) != 2 {
			t.Errorf("%s trusts %d authorities: %v", name, len(trusted), err)
		}
	}
	if c := w.checked(0); c.Verdict != inspect.CertificatesExpire || !slices.Equal(certIDs(c), []string{"exchange-unfinished" + " cp1"}) ||
		!strings.Contains(c.Warnings[0].Message, "2 CAs") ||
		!strings.HasSuffix(c.Warnings[0].Hint, "rotate-ca prod --which front-proxy") {
		t.Errorf("%s: %+v", c.Summary, c.Warnings)
	}
	w.api.remove(at + "v1beta1.metrics.k8s.io")
	w.resume(event.Succeeded)
	w.proxies(from)
}

// TestKilledRotateFrontProxy: the manager is killed at the end of every step, and
// gone on with: one authority comes in the place of the old one, and no second.
func TestKilledRotateFrontProxy(t *testing.T) {
	w := trusted(t)
	from := w.machines["cp1"].files[proxyCA+".crt"]
	w.killedExchange(t, rotateFrontProxy(), "/etc/slipway/rotate/front-proxy-ca.key", proxyCA+".key",
		(*world).unwatched, func(k *world) { k.proxies(from) })
}

// TestRotateFrontProxyUnread: what was cut off when all files had the next authority
// alone waits for API servers that have not read them, and what these have published
// is withdrawn.
func TestRotateFrontProxyUnread(t *testing.T) {
	w := trusted(t)
	from := w.machines["cp1"].files[proxyCA+".crt"]
	w.do(rotateFrontProxy(), event.Succeeded)
	for _, e := range []string{".crt", ".key"} { // the end was not come to
		w.machines["cp1"].files["/etc/slipway/rotate/front-proxy-ca"+e] = w.machines["cp1"].files[proxyCA+e]
	}
	is := w.machines["cp1"].files[proxyCA+".crt"]
	w.machines["cp3"].state["trusts"] = "older"
	data := w.api.objects[publishedAt]["data"].(object)
	data["requestheader-client-ca-file"] = data["requestheader-client-ca-file"].(string) + from
	w.do(rotateFrontProxy(), event.Succeeded)
	w.proxies(from)
	if m := w.machines["cp3"]; m.state["trusts"] == "older" || m.files[proxyCA+".crt"] != is {
		t.Errorf("nobody has waited for its API server, or it was exchanged twice: %t", m.files[proxyCA+".crt"] != is)
	}
}

// TestRotateFrontProxyRefused: what cannot be exchanged is said before anything is
// touched.
func TestRotateFrontProxyRefused(t *testing.T) {
	w := trusted(t)
	var list diag.List
	key := w.machines["cp1"].files[proxyCA+".key"]
	delete(w.machines["cp1"].files, proxyCA+".key")
	if _, err := w.service().Prepare(t.Context(), rotateFrontProxy(), nil); !errors.As(err, &list) || list[0].ID != idAuthorityNoKey {
		t.Errorf("an authority whose key others have: %v", err)
	}
	w.machines["cp1"].files[proxyCA+".key"] = key
	delete(w.machines["cp2"].files, proxyCA+".crt")
	if _, err := w.service().Prepare(t.Context(), rotateFrontProxy(), nil); !errors.As(err, &list) || list[0].ID != idRotationCert {
		t.Errorf("a control plane without its authority: %v", err)
	}
	w.machines["cp2"].files[proxyCA+".crt"] = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	if _, err := w.service().Prepare(t.Context(), rotateFrontProxy(), nil); !errors.As(err, &list) || list[0].ID != idRotationCert {
		t.Errorf("a control plane whose authority is damaged: %v", err)
	}
}

// TestKeepalivedPasswordStays: what control planes know each other by in VRRP was made
// of a key of the front proxy's authority, and is not made anew of another one: for as
// long as some had the one and some the other, several would hold the address.
func TestKeepalivedPasswordStays(t *testing.T) {
	w := keepalivedWorld(t)
	for _, m := range w.machines {
		if m.has(proxyCA + ".key") {
			m.files[proxyCA+".key"] = "another"
		}
	}
	if p := w.prepared(w.service().Prepare(t.Context(), Request{Kind: operation.Apply, Cluster: w.cluster()}, nil)); !p.Plan().IsEmpty() {
		t.Errorf("it would change %+v", p.Plan().Steps)
	}
}
