package kubeletcsr

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/node/op"
)

var nodes = []op.KubeletIdentity{
	{Name: "w1", Addresses: []string{"192.0.2.12", "2001:db8::12"}},
	{Name: "w2", Addresses: []string{"192.0.2.13"}},
}

// A draft is a request as it is made for a test.
type draft struct {
	request  Request
	template x509.CertificateRequest
	key      crypto.Signer
	pem      func([]byte) []byte
}

// newServingDraft returns the request of a kubelet of Kubernetes 1.35 to 1.37.
func newServingDraft(t *testing.T) *draft {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	d := &draft{key: key, template: x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:w1", Organization: []string{"system:nodes"}},
		DNSNames: []string{"w1"}, IPAddresses: []net.IP{net.ParseIP("192.0.2.12"), net.ParseIP("2001:db8::12")},
	}}
	d.request.Spec.SignerName, d.request.Spec.Username = Signer, "system:node:w1"
	d.request.Spec.Groups = []string{"system:nodes", "system:authenticated"}
	d.request.Spec.Usages = []string{"digital signature", "server auth"}
	return d
}

func (d *draft) toRequest(t *testing.T) Request {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &d.template, d.key)
	if err != nil {
		t.Fatal(err)
	}
	d.request.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	if d.pem != nil {
		d.request.Spec.Request = d.pem(d.request.Spec.Request)
	}
	return d.request
}

func TestCheckRequest_AcceptsOnlyServingRequestsOfNode(t *testing.T) {
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	strong, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	short, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	spiffe := &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/admin"}
	for _, tc := range []struct {
		name, reason string
		change       func(*draft)
		want         string // a part of the error, "" if no error is expected
	}{
		{"as a kubelet asks", "the normal case", func(*draft) {}, ""},
		{"an address only", "a kubelet does not have to request its name", func(d *draft) { d.template.DNSNames = nil }, ""},
		{"key encipherment", "kubelets with RSA keys request it", func(d *draft) {
			d.key = strong
			d.request.Spec.Usages = []string{"key encipherment", "digital signature", "server auth"}
		}, ""},
		{"Ed25519", "a good key", func(d *draft) { d.key = edwards }, ""},
		{"another signer", "client certificates are not approved here", func(d *draft) {
			d.request.Spec.SignerName = "kubernetes.io/kube-apiserver-client-kubelet"
		}, "the signer is"},
		{"a user", "only nodes have kubelets", func(d *draft) { d.request.Spec.Username = "jane" }, `"jane" is not a node`},
		{"a service account", "a pod can create requests with a suitable role", func(d *draft) {
			d.request.Spec.Username = "system:serviceaccount:kube-system:default"
		}, "is not a node"},
		{"an unknown node", "it may have been removed", func(d *draft) { d.request.Spec.Username = "system:node:w9" }, "is not a node"},
		{"a name that continues", "w1 is not w11", func(d *draft) { d.request.Spec.Username = "system:node:w11" }, "is not a node"},
		{
			"no group", "the API server did not authenticate it as a node",
			func(d *draft) { d.request.Spec.Groups = []string{"system:authenticated"} }, "not in group",
		},
		{"for another node", "a node must not get the certificate of another", func(d *draft) {
			d.template.Subject.CommonName = "system:node:w2"
		}, "the subject is"},
		{"by another node", "the address belongs to w1", func(d *draft) {
			d.request.Spec.Username, d.template.Subject.CommonName, d.template.DNSNames = "system:node:w2", "system:node:w2", []string{"w2"}
		}, "192.0.2.12 is not an address of node w2"},
		{"no organization", "the signer refuses it", func(d *draft) { d.template.Subject.Organization = nil }, "the subject is"},
		{"a second organization", "it would be an administrator as a client", func(d *draft) {
			d.template.Subject.Organization = []string{"system:nodes", "system:masters"}
		}, "the subject is"},
		{
			"another organization", "nodes are in system:nodes",
			func(d *draft) { d.template.Subject.Organization = []string{"system:masters"} }, "the subject is",
		},
		{
			"an organizational unit", "a kubelet requests none",
			func(d *draft) { d.template.Subject.OrganizationalUnit = []string{"x"} }, "the subject is",
		},
		{"client auth", "it would also be a client certificate", func(d *draft) {
			d.request.Spec.Usages = append(d.request.Spec.Usages, "client auth")
		}, `usage "client auth"`},
		{
			"cert sign", "it would be a CA",
			func(d *draft) { d.request.Spec.Usages = append(d.request.Spec.Usages, "cert sign") }, `usage "cert sign"`,
		},
		{
			"no server auth", "it would not serve", func(d *draft) { d.request.Spec.Usages = []string{"digital signature"} },
			"does not have the usage",
		},
		{"no usage", "it would not serve", func(d *draft) { d.request.Spec.Usages = nil }, "does not have the usage"},
		{"another's name", "clients of w2 would trust it", func(d *draft) { d.template.DNSNames = []string{"w1", "w2"} }, `"w2" is not a name`},
		{"the API's name", "it would pass for the API server", func(d *draft) {
			d.template.DNSNames = []string{"kubernetes.default.svc"}
		}, "is not a name"},
		{"a wildcard", "it matches every name", func(d *draft) { d.template.DNSNames = []string{"*"} }, "is not a name"},
		{"another's address", "clients of w2 would trust it", func(d *draft) {
			d.template.IPAddresses = append(d.template.IPAddresses, net.ParseIP("192.0.2.13"))
		}, "192.0.2.13 is not an address"},
		{
			"loopback", "every host has it", func(d *draft) { d.template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} },
			"127.0.0.1 is not an address",
		},
		{"the service address", "it would pass for the API server", func(d *draft) {
			d.template.IPAddresses = []net.IP{net.IPv4(10, 96, 0, 1)}
		}, "10.96.0.1 is not an address"},
		{
			"no names", "the certificate would be useless",
			func(d *draft) { d.template.DNSNames, d.template.IPAddresses = nil, nil }, "no address",
		},
		{"an email address", "a kubelet has none", func(d *draft) { d.template.EmailAddresses = []string{"root@w1"} }, "email addresses or URIs"},
		{"a URI", "it would be another identity", func(d *draft) { d.template.URIs = []*url.URL{spiffe} }, "email addresses or URIs"},
		{"basic constraints", "it would be a CA", func(d *draft) {
			d.template.ExtraExtensions = []pkix.Extension{{
				Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true,
				Value: []byte{0x30, 3, 1, 1, 0xff},
			}}
		}, "extension 2.5.29.19"},
		{"a short RSA key", "it can be factored", func(d *draft) { d.key = weak }, "has 1024 bits"},
		{"a short curve", "no component uses it", func(d *draft) { d.key = short }, "curve P-224"},
		{
			"not PEM", "other readers would decode something else",
			func(d *draft) { d.pem = func([]byte) []byte { return []byte("x") } }, "exactly one certificate request",
		},
		{
			"two requests", "the signer might read the other",
			func(d *draft) { d.pem = func(b []byte) []byte { return slices.Concat(b, b) } }, "exactly one certificate request",
		},
		{"a certificate", "it is not a request", func(d *draft) {
			d.pem = func(b []byte) []byte {
				return []byte(strings.ReplaceAll(string(b), "CERTIFICATE REQUEST", "CERTIFICATE"))
			}
		}, "exactly one certificate request"},
		{"garbage", "it cannot be read", func(d *draft) {
			d.pem = func([]byte) []byte {
				return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte("x")})
			}
		}, "reading the request"},
		{"another's signature", "the requester does not have the key", func(d *draft) {
			d.pem = func(b []byte) []byte {
				block, _ := pem.Decode(b)
				block.Bytes[len(block.Bytes)-1] ^= 1
				return pem.EncodeToMemory(block)
			}
		}, "reading the request"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newServingDraft(t)
			tc.change(d)
			err := CheckRequest(d.toRequest(t), nodes)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("%s: %v", tc.reason, err)
			case tc.want != "" && err == nil:
				t.Errorf("approved: %s", tc.reason)
			case tc.want != "" && !strings.Contains(err.Error(), tc.want):
				t.Errorf("%v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestIsPending_IsFalseAfterDecision(t *testing.T) {
	for _, tc := range []struct {
		name, reason, text string
		want               bool
	}{
		{"new", "it is not decided", `{"spec": {"signerName": "kubernetes.io/kubelet-serving"}}`, true},
		{
			"approved", "it is decided",
			`{"spec": {"signerName": "kubernetes.io/kubelet-serving"}, "status": {"conditions": [{"type": "Approved"}]}}`, false,
		},
		{
			"denied", "an administrator has denied it",
			`{"spec": {"signerName": "kubernetes.io/kubelet-serving"}, "status": {"conditions": [{"type": "Denied"}]}}`, false,
		},
		{"signed", "it has a certificate", `{"spec": {"signerName": "kubernetes.io/kubelet-serving"}, "status": {"certificate": "eA=="}}`, false},
		{"of another signer", "it belongs to another signer", `{"spec": {"signerName": "kubernetes.io/kube-apiserver-client"}}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r Request
			if err := json.Unmarshal([]byte(tc.text), &r); err != nil {
				t.Fatal(err)
			}
			if r.IsPending() != tc.want {
				t.Errorf("pending: %t, want %t: %s", r.IsPending(), tc.want, tc.reason)
			}
		})
	}
}
