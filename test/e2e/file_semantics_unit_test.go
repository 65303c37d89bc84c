package e2e

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// made is a certificate that a test makes, each time with another key, number
// and second.
type made struct{ cert, key []byte }

func makeCertificate(t *testing.T, change func(*x509.Certificate)) made {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	seconds := time.Duration(serial.Int64()%1000) * time.Second
	c := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{Organization: []string{"system:nodes"}, CommonName: "system:node:w1"},
		NotBefore:    noon.Add(-seconds), NotAfter: noon.Add(365*24*time.Hour + 5*time.Minute),
		DNSNames: []string{"w1", "localhost"}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	if change != nil {
		change(c)
	}
	issuer := *c
	issuer.Subject = pkix.Name{CommonName: "kubernetes"}
	der, err := x509.CreateCertificate(rand.Reader, c, &issuer, key.Public(), crypto.Signer(key))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return made{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}),
	}
}

// TestDescribeContent_ShowsMeaningOfCertificates checks that the text changes with the
// subject, names, usage and validity of a certificate, but not with its key.
func TestDescribeContent_ShowsMeaningOfCertificates(t *testing.T) {
	const path = "/etc/kubernetes/pki/apiserver.crt"
	plain := describeContent(path, makeCertificate(t, nil).cert)
	want := "certificate of CN=system:node:w1,O=system:nodes by CN=kubernetes, for [DNS:localhost DNS:w1 IP:192.0.2.1], " +
		"uses [digitalSignature keyEncipherment clientAuth], CA false, key ECDSA P-256, signature ECDSA-SHA256, " +
		"extensions [2.5.29.15 2.5.29.17 2.5.29.19 2.5.29.37], good for 8760 hours"
	if diff := cmp.Diff(want, plain); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	tests := []struct {
		name, reason string
		change       func(*x509.Certificate)
		same         bool
	}{
		{"another key", "keys, numbers and seconds are always others", nil, true},
		{"subject", "it is somebody else's", func(c *x509.Certificate) { c.Subject.CommonName = "w2" }, false},
		{"name", "it is good for less", func(c *x509.Certificate) { c.DNSNames = c.DNSNames[:1] }, false},
		{"address", "it is good for less", func(c *x509.Certificate) { c.IPAddresses = nil }, false},
		{"use", "it may do more", func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth) }, false},
		{"key use", "it may do less", func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }, false},
		{"CA", "it may sign", func(c *x509.Certificate) { c.IsCA = true }, false},
		{"day", "it ends a day later", func(c *x509.Certificate) { c.NotAfter = c.NotAfter.Add(24 * time.Hour) }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := describeContent(path, makeCertificate(t, tt.change).cert); got == "" || (got == plain) != tt.same {
				t.Errorf("%s: same %t, got\n%s", tt.reason, got == plain, got)
			}
		})
	}
}

func TestDescribeContent_IgnoresTimeInSubjectOfKubelet(t *testing.T) {
	at := func(second string) string {
		c := makeCertificate(t, func(c *x509.Certificate) { c.Subject.CommonName = "w1@" + second })
		return describeContent("/var/lib/kubelet/pki/kubelet.crt", c.cert)
	}
	if a, b := at("1767268800"), at("1767268977"); a == "" || a != b {
		t.Errorf("the second in the subject makes a difference:\n%s\n%s", a, b)
	}
}

func TestDescribeContent_ShowsWhetherKeyFitsCertificate(t *testing.T) {
	a, b := makeCertificate(t, nil), makeCertificate(t, nil)
	text := func(m ...[]byte) string {
		return describeContent("/var/lib/kubelet/pki/kubelet-client-TIME.pem", []byte(string(m[0])+string(m[1])))
	}
	if own, other := text(a.cert, a.key), text(a.cert,
		b.key); !strings.HasSuffix(own, "ec private key ECDSA P-256\nthe key is the certificate's") || strings.HasSuffix(other, "certificate's") {
		t.Errorf("whose key it is does not show:\n%s\n%s", own, other)
	}
	for _, broken := range []string{"", "nothing", string(a.cert[:100]), string(a.cert) + "and more"} {
		if got := describeContent("/etc/kubernetes/pki/ca.crt", []byte(broken)); got != "" {
			t.Errorf("%q is %q", broken, got)
		}
	}
}

func makeKubeconfig(t *testing.T, server string) []byte {
	t.Helper()
	ca, user := makeCertificate(t, nil), makeCertificate(t, nil)
	text := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: prod
  cluster: {server: %q, certificate-authority-data: %s}
users:
- name: admin
  user: {client-certificate-data: %s, client-key-data: %s}
contexts:
- {name: admin@prod, context: {cluster: prod, user: admin}}
current-context: admin@prod
`, server, text(ca.cert), text(user.cert), text(user.key))
}

func TestDescribeContent_ShowsMeaningOfKubeconfigs(t *testing.T) {
	const path = "/etc/kubernetes/admin.conf"
	one := describeContent(path, makeKubeconfig(t, "https://a:6443"))
	for _, want := range []string{
		"server: https://a:6443", "certificate-authority-data: certificate of CN=system:node:w1",
		"client-key-data: ec private key ECDSA P-256, the certificate's", "current-context: admin@prod",
	} {
		if !strings.Contains(one, want) {
			t.Errorf("%q is not in\n%s", want, one)
		}
	}
	if again := describeContent(path, makeKubeconfig(t, "https://a:6443")); again != one {
		t.Errorf("other keys make a difference:\n%s", cmp.Diff(one, again))
	}
	if other := describeContent(path, makeKubeconfig(t, "https://b:6443")); other == one {
		t.Error("another server makes no difference")
	}
	if got := describeContent(path, []byte("kind: Secret")); got != "" {
		t.Errorf("something else is %q", got)
	}
}

// TestDescribeContent_IgnoresOrderAndTimesOfLedger checks that the text changes with the
// entries of a ledger, but not with their order, times and operations.
func TestDescribeContent_IgnoresOrderAndTimesOfLedger(t *testing.T) {
	const path = "/var/lib/slipway/ledger/log"
	one := `{"entry":{"seq":1,"kind":"path","key":"/etc/hosts","by":{"cluster":"c","operation":"o1"},"data":{"type":"file","mode":420,` +
		`"mtime":17,"sha256":"aa","object":"1"}}}
{"wrote":{"path":"/etc/hosts","state":"file bb"}}
{"entry":{"seq":2,"kind":"sysctl","key":"vm.swappiness","by":{"cluster":"c"},"data":"60"}}
{"wrote":{"path":"/var/lib/etcd","exclusive":true}}
`
	lines := strings.SplitAfter(one, "\n")
	moved := strings.NewReplacer("17", "18", "o1", "o2", `"seq":1`, `"seq":3`, `"object":"1"`,
		`"object":"3"`).Replace(lines[2] + lines[0] + lines[3] + lines[1])
	if a, b := describeContent(path, []byte(one)), describeContent(path, []byte(moved)); a == "" || a != b {
		t.Errorf("order, times and operations make a difference:\n%s", cmp.Diff(a, b))
	}
	for what, other := range map[string]string{
		"another original":  strings.Replace(one, `"aa"`, `"bb"`, 1),
		"an entry less":     lines[0] + lines[1] + lines[3],
		"no longer all our": lines[0] + lines[1] + lines[2],
		"cut":               one[:len(one)-5],
	} {
		if describeContent(path, []byte(other)) == describeContent(path, []byte(one)) {
			t.Errorf("%s makes no difference", what)
		}
	}
}

func TestWithoutTime_ReplacesDateInCertificateName(t *testing.T) {
	for name, want := range map[string]string{
		"/var/lib/kubelet/pki/kubelet-client-2026-11-20-20-10-11.pem": "/var/lib/kubelet/pki/kubelet-client-TIME.pem",
		"/var/lib/kubelet/pki/kubelet-client-current.pem":             "/var/lib/kubelet/pki/kubelet-client-current.pem",
	} {
		if got := withoutTime(name); got != want {
			t.Errorf("%s is %s", name, got)
		}
	}
}
