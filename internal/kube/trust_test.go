package kube

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func isOldText(text []byte) bool { return string(text) == "the old one" }

// TestTrustFindObjectsWithText_FindsPlainAndEncodedText: a text is found anywhere in an
// object, plain or base64-encoded. Kinds that the API server does not serve are skipped,
// and lists are read page by page.
func TestTrustFindObjectsWithText_FindsPlainAndEncodedText(t *testing.T) {
	one := func(kind, name, rest string) string {
		return `{"apiVersion":"v1","kind":"` + kind + `","metadata":{"name":"` + name +
			`","namespace":"n","annotations":{"a":"the old one"}},` + rest + `}`
	}
	list := func(more string, items ...string) string {
		return `{"kind":"List","apiVersion":"v1","metadata":{"continue":"` + more + `"},"items":[` + strings.Join(items, ",") + `]}`
	}
	const encoded = "dGhlIG9sZCBvbmU="
	f := newFakeAPI(t,
		call{
			request: "GET /api/v1/configmaps?limit=200",
			answer: list("more", one("ConfigMap", "has", `"data":{"x":"y","z":"the old one"}`),
				one("ConfigMap", "other", `"data":{"x":"another"}`)),
		},
		call{
			request: "GET /api/v1/configmaps?continue=more&limit=200",
			answer:  list("", one("ConfigMap", "binary", `"binaryData":{"x":"`+encoded+`"}`)),
		},
		call{request: "GET /api/v1/secrets?limit=200", answer: list("", one("Secret", "kept", `"data":{"x":"`+encoded+`"}`))},
		call{
			request: "GET /apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?limit=200",
			answer:  list("", one("ValidatingWebhookConfiguration", "hook", `"webhooks":[{"clientConfig":{"caBundle":"`+encoded+`"}}]`)),
		},
		call{request: "GET /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?limit=200", answer: list("")},
		call{
			request: "GET /apis/apiregistration.k8s.io/v1/apiservices?limit=200", status: http.StatusNotFound,
			answer: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`,
		},
		call{request: "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions?limit=200", answer: list("")},
	)
	got, err := f.newClient().Trust().FindObjectsWithText(t.Context(), isOldText)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"ConfigMap n/binary", "ConfigMap n/has", "Secret n/kept", "ValidatingWebhookConfiguration n/hook"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestTrustFindConfigWithText_ReadsOnlyConfigMapsAndSecrets: certificates that clients and
// servers present are searched only in ConfigMaps and Secrets.
func TestTrustFindConfigWithText_ReadsOnlyConfigMapsAndSecrets(t *testing.T) {
	f := newFakeAPI(t,
		call{
			request: "GET /api/v1/configmaps?limit=200",
			answer:  listJSON(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"has","namespace":"n"},"data":{"z":"the old one"}}`),
		},
		call{
			request: "GET /api/v1/secrets?limit=200",
			answer: listJSON(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"kept","namespace":"n"},` +
				`"data":{"tls.crt":"dGhlIG9sZCBvbmU="}}`),
		},
	)
	got, err := f.newClient().Trust().FindConfigWithText(t.Context(), isOldText)
	if diff := cmp.Diff([]string{"ConfigMap n/has", "Secret n/kept"}, got); diff != "" || err != nil {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}

// TestTrustWaitRootCAs_WaitsForNamespacesAndTokenSecrets: it waits for the ConfigMap of each
// namespace and for each token in a Secret, and reports the missing ones.
func TestTrustWaitRootCAs_WaitsForNamespacesAndTokenSecrets(t *testing.T) {
	maps := func(text string) call {
		return call{
			request: "GET /api/v1/configmaps?fieldSelector=metadata.name%3Dkube-root-ca.crt",
			answer: `{"kind":"ConfigMapList","apiVersion":"v1","items":[
			{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"a","name":"kube-root-ca.crt"},"data":{"ca.crt":"` + text + `"}}]}`,
		}
	}
	tokens := func(text string) call {
		return call{
			request: "GET /api/v1/secrets?fieldSelector=type%3Dkubernetes.io%2Fservice-account-token",
			answer: `{"kind":"SecretList","apiVersion":"v1","items":[
			{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"b","name":"t"},"data":{"ca.crt":"` + text + `"}}]}`,
		}
	}
	const wanted = "dGhlIG9sZCBvbmU="
	f := newFakeAPI(t, maps("another"), tokens(wanted), maps("the old one"), tokens("YW5vdGhlcg=="), maps("the old one"), tokens(wanted))
	var said []string
	if err := f.newClient().Trust().WaitRootCAs(t.Context(), isOldText, func(s string) { said = append(said, s) }); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"the controller manager has not updated ConfigMap a/kube-root-ca.crt and 0 others yet",
		"the controller manager has not updated Secret b/t and 0 others yet",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestTrustListTokenSecrets_ReturnsAllSorted: tokens without an expiry are all returned, sorted.
func TestTrustListTokenSecrets_ReturnsAllSorted(t *testing.T) {
	secret := func(namespace, name string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":%q,"name":%q},"data":{"token":%q,"ca.crt":"Y2E="}}`,
			namespace, name, base64.StdEncoding.EncodeToString([]byte("t-"+name)))
	}
	f := newFakeAPI(t, call{
		request: "GET /api/v1/secrets?fieldSelector=type%3Dkubernetes.io%2Fservice-account-token",
		answer:  `{"kind":"SecretList","apiVersion":"v1","items":[` + secret("z", "a") + "," + secret("b", "c") + "," + secret("b", "a") + `]}`,
	})
	got, err := f.newClient().Trust().ListTokenSecrets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []TokenSecret{{"b", "a", "t-a", []byte("ca")}, {"b", "c", "t-c", []byte("ca")}, {"z", "a", "t-a", []byte("ca")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
