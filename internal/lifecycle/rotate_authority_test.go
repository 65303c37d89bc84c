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
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

const (
	proxyClient = "/etc/kubernetes/pki/front-proxy-client"
)

// trusted creates a running cluster with real certificates, whose API servers have read
// their CA bundles.
func trusted(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, "cp1", "cp2", "cp3", "w1")
	w.create(event.Succeeded)
	w.issueCertificates(300 * certDay)
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		w.Hosts[name].ReloadTrust([]string{"/etc/kubernetes/pki/ca.crt", proxyCA + ".crt"})
	}
	return w
}

// proxies checks that all control planes have one new front proxy CA, that they trust no
// other, and that nothing of the rotation is left.
func (w *world) proxies(from string) {
	w.t.Helper()
	first := w.Hosts["cp1"]
	key, err := pki.ParseKey([]byte(first.Files[proxyCA+".key"]))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		m := w.Hosts[name]
		ca, err := pki.ParseCertificate([]byte(m.Files[proxyCA+".crt"]))
		if err != nil || m.Files[proxyCA+".crt"] == from || m.Files[proxyCA+".crt"] != first.Files[proxyCA+".crt"] ||
			strings.Count(m.Files[proxyCA+".crt"], "BEGIN") != 1 {
			w.t.Errorf("%s trusts\n%s%v", name, m.Files[proxyCA+".crt"], err)
			continue
		}
		if m.Files[proxyCA+".key"] != first.Files[proxyCA+".key"] || !pki.IsPair(ca, key) {
			w.t.Errorf("%s cannot sign with it", name)
		}
		leaf, err := pki.ParseCertificate([]byte(m.Files[proxyClient+".crt"]))
		if err != nil || leaf.CheckSignatureFrom(ca) != nil {
			w.t.Errorf("the client certificate of %s is not signed by it: %v", name, err)
		}
		if m.State["loaded "+proxyClient+".crt"] != m.Files[proxyClient+".crt"] {
			w.t.Errorf("the API server of %s has not read its client certificate", name)
		}
		for path := range m.Files {
			if strings.Contains(path, "/rotate/") {
				w.t.Errorf("%s still has %s", name, path)
			}
		}
	}
	now := w.API.Objects[lifecycletest.PublishedCAsPath]["data"].(object)
	if now["requestheader-client-ca-file"] != first.Files[proxyCA+".crt"] ||
		now["client-ca-file"] != "others" {
		w.t.Errorf("the published ConfigMap has\n%v", now)
	}
}

func rotateFrontProxy() RotateCARequest {
	return RotateCARequest{Name: "prod", Names: []string{certs.FrontProxy}}
}

// TestRotateFrontProxy_TrustsNextCABeforeUsingIt checks the order. All API servers trust both CAs before any uses a
// certificate of the next CA, and all use one before the old CA is removed.
func TestRotateFrontProxy_TrustsNextCABeforeUsingIt(t *testing.T) {
	t.Parallel()
	w := trusted(t)
	from, shows := w.Hosts["cp1"].Files[proxyCA+".crt"], w.Hosts["cp1"].Files[proxyClient+".key"]
	res := w.do(rotateFrontProxy(), event.Succeeded)
	w.proxies(from)
	if w.Hosts["cp1"].Files[proxyClient+".key"] != shows {
		t.Error("the key was replaced: key and certificate do not match for a moment")
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
		t.Error("the result is empty")
	}
	w.wantStatus(v1alpha1.PhaseRunning, "rotate-ca Succeeded", "create Succeeded")
	for _, d := range w.checked(0).Warnings {
		t.Errorf("%+v", d)
	}
}

// TestRotateFrontProxy_KeepsCAForRejectingAPI checks that the old CA is kept while an
// aggregated API rejects certificates of the next CA. The failure names that API.
func TestRotateFrontProxy_KeepsCAForRejectingAPI(t *testing.T) {
	t.Parallel()
	w := trusted(t)
	from := w.Hosts["cp1"].Files[proxyCA+".crt"]
	const at = "/apis/apiregistration.k8s.io/v1/apiservices/"
	w.API.PutObject(at+"v1.apps",
		object{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": object{"name": "v1.apps"},
			"spec": object{"group": "apps", "version": "v1"},
		})
	w.API.PutObject(at+"v1beta1.metrics.k8s.io", object{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": object{"name": "v1beta1.metrics.k8s.io"},
		"spec": object{"group": "metrics.k8s.io", "version": "v1beta1", "service": object{"name": "metrics-server", "namespace": "kube-system"}},
	})
	res := w.do(rotateFrontProxy(), event.Failed)
	if f := res.Failures[0]; f.Reason != op.IDAuthorityHeld || !strings.Contains(f.Message, "v1beta1.metrics.k8s.io") ||
		strings.Contains(f.Message, "v1.apps") {
		t.Errorf("%+v", f)
	}
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		if trusted, err := pki.ParseAuthorities([]byte(w.Hosts[name].Files[proxyCA+".crt"])); err != nil || len(trusted) != 2 {
			t.Errorf("%s trusts %d CAs: %v", name, len(trusted), err)
		}
	}
	if c := w.checked(0); c.Verdict != inspect.CertificatesExpire || !slices.Equal(certIDs(c), []string{"exchange-unfinished" + " cp1"}) ||
		!strings.Contains(c.Warnings[0].Message, "2 CAs") ||
		!strings.HasSuffix(c.Warnings[0].Hint, "rotate-ca prod --which front-proxy") {
		t.Errorf("%s: %+v", c.Summary, c.Warnings)
	}
	w.API.RemoveObject(at + "v1beta1.metrics.k8s.io")
	w.resume(event.Succeeded)
	w.proxies(from)
}

// TestRotateFrontProxy_ReplacesCAOnceAfterKill kills the manager at the end of each step and resumes. The
// old CA is replaced exactly once.
func TestRotateFrontProxy_ReplacesCAOnceAfterKill(t *testing.T) {
	w := trusted(t)
	from := w.Hosts["cp1"].Files[proxyCA+".crt"]
	w.killedExchange(t, rotateFrontProxy(), "/etc/slipway/rotate/front-proxy-ca.key", proxyCA+".key",
		(*world).unwatched, func(k *world) { k.proxies(from) })
}

// TestRotateFrontProxy_WaitsForAPIServersAfterInterruption finishes a rotation that was interrupted when all files had
// only the next CA. It waits for API servers that have not read the files, and withdraws
// the published old CA.
func TestRotateFrontProxy_WaitsForAPIServersAfterInterruption(t *testing.T) {
	t.Parallel()
	w := trusted(t)
	from := w.Hosts["cp1"].Files[proxyCA+".crt"]
	w.do(rotateFrontProxy(), event.Succeeded)
	for _, e := range []string{".crt", ".key"} { // the last step was not done
		w.Hosts["cp1"].Files["/etc/slipway/rotate/front-proxy-ca"+e] = w.Hosts["cp1"].Files[proxyCA+e]
	}
	is := w.Hosts["cp1"].Files[proxyCA+".crt"]
	w.Hosts["cp3"].State["trusts"] = "older"
	data := w.API.Objects[lifecycletest.PublishedCAsPath]["data"].(object)
	data["requestheader-client-ca-file"] = data["requestheader-client-ca-file"].(string) + from
	w.do(rotateFrontProxy(), event.Succeeded)
	w.proxies(from)
	if m := w.Hosts["cp3"]; m.State["trusts"] == "older" || m.Files[proxyCA+".crt"] != is {
		t.Errorf("the rotation did not wait for the API server, or the CA was rotated twice: %t", m.Files[proxyCA+".crt"] != is)
	}
}

// A rotation is refused if the key of the CA is missing, or a control plane has no CA or
// a damaged one.
func TestRotateFrontProxy_RefusesMissingOrDamagedCA(t *testing.T) {
	t.Parallel()
	w := trusted(t)
	var list diag.List
	key := w.Hosts["cp1"].Files[proxyCA+".key"]
	delete(w.Hosts["cp1"].Files, proxyCA+".key")
	if _, err := w.service().Prepare(t.Context(), rotateFrontProxy(), nil); !errors.As(err, &list) || list[0].ID != idAuthorityNoKey {
		t.Errorf("a CA without a local key: %v", err)
	}
	w.Hosts["cp1"].Files[proxyCA+".key"] = key
	delete(w.Hosts["cp2"].Files, proxyCA+".crt")
	if _, err := w.service().Prepare(t.Context(), rotateFrontProxy(), nil); !errors.As(err, &list) || list[0].ID != idRotationCert {
		t.Errorf("a control plane without its CA: %v", err)
	}
	w.Hosts["cp2"].Files[proxyCA+".crt"] = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	if _, err := w.service().Prepare(t.Context(), rotateFrontProxy(), nil); !errors.As(err, &list) || list[0].ID != idRotationCert {
		t.Errorf("a control plane whose CA is damaged: %v", err)
	}
}

// TestKeepalivedPassword_DoesNotFollowProxyCA checks that the VRRP password does not change
// with the key of the front proxy CA, from which it was derived. With different passwords,
// several control planes would hold the address.
func TestKeepalivedPassword_DoesNotFollowProxyCA(t *testing.T) {
	t.Parallel()
	w := keepalivedWorld(t)
	for _, m := range w.Hosts {
		if m.HasFile(proxyCA + ".key") {
			m.Files[proxyCA+".key"] = "another"
		}
	}
	if p := w.prepared(w.service().Prepare(t.Context(), applying(w.Manifest()), nil)); !p.Plan().IsEmpty() {
		t.Errorf("the plan has %+v", p.Plan().Steps)
	}
}
