package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
)

// TestApproveServing_ApprovesOnlyAllowedRequestsOfKubelet: of the pending requests of one
// kubelet those are approved that it may make, as they were read.
func TestApproveServing_ApprovesOnlyAllowedRequestsOfKubelet(t *testing.T) {
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request := func(name, node, address, status string) string {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
			Subject:     pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
			IPAddresses: []net.IP{net.ParseIP(address)},
		}, key)
		if err != nil {
			t.Fatal(err)
		}
		text := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
		return fmt.Sprintf(`{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":%q,`+
			`"resourceVersion":"7"},`+

			`"spec":{"request":%q,"signerName":"kubernetes.io/kubelet-serving","username":"system:node:%s","groups":["system:nodes"],`+
			`"usages":["digital signature","server auth"]},"status":%s}`,
			name, text, node, status)
	}
	list := func(more string, items ...string) string {
		return `{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequestList","metadata":{"continue":"` + more + `"},` +
			`"items":[` + strings.Join(items, ",") + "]}"
	}
	query := "fieldSelector=spec.signerName%3Dkubernetes.io%2Fkubelet-serving&limit=50"
	first := call{request: "GET " + path + "?" + query, answer: list("next", request("bad", "w1", "192.0.2.11", "{}"),
		request("denied", "w1", "192.0.2.12", `{"conditions":[{"type":"Denied","status":"True"}]}`))}
	asks := call{
		request: "GET " + path + "?continue=next&" + query,
		answer:  list("", request("good", "w1", "192.0.2.12", "{}"), request("others", "w2", "192.0.2.13", "{}")),
	}
	approves := call{
		request: "PUT " + path + "/good/approval?fieldManager=slipway", body: `"resourceVersion":"7"`,
		answer: request("good", "w1", "192.0.2.12", "{}"),
	}
	gone, changed := approves, approves
	gone.status, gone.answer, changed.status, changed.answer = 404, "", 409, ""
	approves.body = `"type":"Approved"`
	f := newFakeAPI(t, first, asks, approves, first, asks, gone, first, asks, changed)
	c := f.newClient()
	kubelet := op.KubeletIdentity{Name: "w1", Addresses: []string{"192.0.2.12"}}
	for _, reason := range []string{"it is approved", "one that is gone needs no approval"} {
		approved, refused, err := c.CertificateRequests().ApproveServing(t.Context(), kubelet)
		if err != nil {
			t.Fatalf("%s: %v", reason, err)
		}
		if d := cmp.Diff([]string{"good"}, approved); d != "" {
			t.Errorf("%s (-want +got):\n%s", reason, d)
		}
		if d := cmp.Diff([]string{"bad: 192.0.2.11 is not an address of node w1"}, refused); d != "" {
			t.Errorf("pending requests (-want +got):\n%s", d)
		}
	}
	if _, _, err := c.CertificateRequests().ApproveServing(t.Context(), kubelet); !IsTemporary(err) {
		t.Errorf("an object that has changed is checked again: %v", err)
	}
}
