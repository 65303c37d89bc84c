package kube

import (
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBootstrapTokens_ReturnsOnlyTokensOfSlipway(t *testing.T) {
	const path = "/api/v1/namespaces/kube-system/secrets"
	data := func(key, value string) string {
		return fmt.Sprintf("%q:%q", key, base64.StdEncoding.EncodeToString([]byte(value)))
	}
	secret := func(id, description string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"bootstrap-token-` + id + `"},"data":{` +
			data("token-id", id) + "," + data("description", description) + "}}"
	}
	f := newFakeAPI(t,
		call{request: "POST " + path + "?fieldManager=slipway", body: `"token-id":"abcdef"`, answer: secret("abcdef", "ours")},
		call{request: "POST " + path + "?fieldManager=slipway", status: 403},
		call{
			request: "GET " + path + "?fieldSelector=type%3Dbootstrap.kubernetes.io%2Ftoken",
			answer:  `{"apiVersion":"v1","kind":"SecretList","items":[` + secret("abcdef", "ours") + "," + secret("ffffff", "theirs") + "]}",
		},
		call{request: "DELETE " + path + "/bootstrap-token-abcdef", answer: `{"kind":"Status","apiVersion":"v1","status":"Success"}`},
		call{request: "DELETE " + path + "/bootstrap-token-abcdef", status: 404},
	)
	c := f.newClient()
	token := BootstrapToken{ID: "abcdef", Secret: "0123456789abcdef", Description: "ours", Validity: time.Hour}
	if err := c.BootstrapTokens().Create(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	wantReason(t, c.BootstrapTokens().Create(t.Context(), token), ReasonForbidden)
	ids, err := c.BootstrapTokens().List(t.Context(), "ours")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"abcdef"}, ids); diff != "" {
		t.Errorf("tokens of Slipway: -want +got\n%s", diff)
	}
	for range 2 { // a missing token is not an error
		if err := c.BootstrapTokens().Delete(t.Context(), "abcdef"); err != nil {
			t.Error(err)
		}
	}
}
