package addonsource

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/pki"
)

func TestRenewalReason_FindsWhyCertificateMustBeRenewed(t *testing.T) {
	s := Serving{Namespace: "kube-system", Secret: "api-tls", APIService: "v1.example.com", Name: "api.kube-system.svc"}
	now := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	made := func(s Serving, at time.Time, before ServingCert) ServingCert {
		t.Helper()
		c, err := s.NewServingCert(at, before)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first, other := made(s, now, ServingCert{}), made(s, now, ServingCert{})
	elsewhere := made(Serving{Secret: "api-tls", Name: "other.kube-system.svc"}, now, ServingCert{})
	for _, tc := range []struct {
		name, reason string
		cert         ServingCert
		at           time.Time
		due          bool
	}{
		{"new", "it has all of its time", first, now, false},
		{"after seven years", "there is time left", first, now.AddDate(7, 0, 0), false},
		{"after nine years", "the last fifth of its time has begun", first, now.AddDate(9, 0, 0), true},
		{"nothing", "no certificate exists", ServingCert{}, now, true},
		{"garbage", "it is not a certificate", ServingCert{Cert: []byte("x"), Key: first.Key, CA: first.CA}, now, true},
		{"no CA", "clients could not verify it", ServingCert{Cert: first.Cert, Key: first.Key}, now, true},
		{"another key", "a server could not use it", ServingCert{Cert: first.Cert, Key: other.Key, CA: first.CA}, now, true},
		{"another's CA", "the API server would refuse it", ServingCert{Cert: first.Cert, Key: first.Key, CA: other.CA}, now, true},
		{"another name", "the API server would refuse it", elsewhere, now, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if why := tc.cert.RenewalReason(s, tc.at); (why != "") != tc.due {
				t.Errorf("due: %q, want %t: %s", why, tc.due, tc.reason)
			}
		})
	}
	next := made(s, now.AddDate(9, 0, 0), first)
	trusted, err := pki.ParseAuthorities(next.CA)
	if err != nil || len(trusted) != 2 {
		t.Errorf("%d CAs are trusted after a renewal, want the new and the previous one: %v", len(trusted), err)
	}
	third := made(s, now.AddDate(18, 0, 0), next)
	if trusted, err = pki.ParseAuthorities(third.CA); err != nil || len(trusted) != 2 {
		t.Errorf("%d CAs are trusted after two renewals, want no more than two: %v", len(trusted), err)
	}
	if fresh := made(s, now, ServingCert{CA: []byte("x")}); fresh.RenewalReason(s, now) != "" {
		t.Error("an unreadable previous certificate makes the new one invalid")
	}
}

func TestWithServingCert_PutsCertificateIntoObjects(t *testing.T) {
	l := Loader{
		Cache: t.TempDir(), Kubernetes: "v1.37.1",
		Images: map[string]string{"metrics-server": "example.com/metrics-server:v1"}, VerifiedKubelets: true,
	}
	list, _, err := l.Load(t.Context(), []v1alpha1.Addon{{Name: "metrics-server"}})
	if err != nil {
		t.Fatal(err)
	}
	a := list[0]
	c := ServingCert{Cert: []byte("cert"), Key: []byte("key"), CA: []byte("ca")}
	with := a.WithServingCert(c)
	var secret, api *unstructured.Unstructured
	for i, o := range with.Objects {
		switch {
		case a.Serving.IsSecret(o):
			secret = o
			if a.Objects[i].Object["data"] != nil {
				t.Error("the original add-on has a certificate, which would change its digest")
			}
		case a.Serving.IsAPI(o):
			api = o
		}
	}
	if secret == nil || api == nil {
		t.Fatal("metrics-server has no Secret or no APIService")
	}
	if d := cmp.Diff(c, ServingCertOf(secret)); d != "" {
		t.Errorf("the hooks from the Secret (-want +got):\n%s", d)
	}
	bundle, _, _ := unstructured.NestedString(api.Object, "spec", "caBundle")
	if bundle != base64.StdEncoding.EncodeToString(c.CA) {
		t.Errorf("caBundle is %q", bundle)
	}
	if _, insecure, _ := unstructured.NestedBool(api.Object, "spec", "insecureSkipTLSVerify"); insecure {
		t.Error("the API server does not verify metrics-server")
	}
}
