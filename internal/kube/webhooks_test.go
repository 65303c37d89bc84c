package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAPIServerListWebhooks_ReportsWhetherServicesAreReady(t *testing.T) {
	hook := func(name, policy, service string) string {
		return `{"name":"` + name + `"` + policy + `,"clientConfig":{"service":{"namespace":"ns","name":"` + service + `"}}}`
	}
	slice := func(ready string) string {
		return `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"s","namespace":"ns"},` +
			`"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":` + ready + `}}]}`
	}
	const admission = "GET /apis/admissionregistration.k8s.io/v1/"
	f := newFakeAPI(t,
		call{request: admission + "validatingwebhookconfigurations", answer: listJSON(`{"apiVersion":"admissionregistration.k8s.io/v1",` +
			`"kind":"ValidatingWebhookConfiguration","metadata":{"name":"v"},"webhooks":[` +
			hook("well", "", "well") + "," + hook("ill", "", "ill") + "," + hook("never-mind", `,"failurePolicy":"Ignore"`, "ill") + `,` +
			`{"name":"url","clientConfig":{"url":"https://example.com"}}]}`)},
		call{
			request: "GET /apis/discovery.k8s.io/v1/namespaces/ns/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dwell",
			answer:  listJSON(slice("true")),
		},
		call{
			request: "GET /apis/discovery.k8s.io/v1/namespaces/ns/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dill",
			answer:  listJSON(slice("false")),
		},
		call{request: admission + "mutatingwebhookconfigurations", answer: listJSON(`{"apiVersion":"admissionregistration.k8s.io/v1",` +
			`"kind":"MutatingWebhookConfiguration","metadata":{"name":"m"},"webhooks":[` +
			hook("well", `,"failurePolicy":"Ignore"`, "ill") + `]}`)},
	)
	got, err := f.newClient().APIServer().ListWebhooks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []Webhook{
		{Config: "m", Name: "well", Mutates: true},
		{Config: "v", Name: "ill", Dead: "Service ns/ill has no ready endpoint"},
		{Config: "v", Name: "never-mind"},
		{Config: "v", Name: "url"},
		{Config: "v", Name: "well"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if f := (FailedCall{Webhook: "well"}); f.IsOf(got[0]) || !f.IsOf(got[4]) || f.IsOf(got[1]) {
		t.Error("the call matches another webhook")
	}
}
