// Package pkitest creates CAs and certificates for tests.
package pkitest

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"net"
	"testing"
	"time"

	"slipway.dev/slipway/internal/pki"
)

// An Authority is a CA. Cert and Key are in PEM form.
type Authority struct {
	Cert, Key string

	cert *x509.Certificate
	key  crypto.Signer
}

// NewAuthority returns a CA with this validity.
func NewAuthority(t testing.TB, name string, begins, ends time.Time) *Authority {
	t.Helper()
	a := &Authority{}
	var text []byte
	var err error
	if a.key, text, err = pki.NewKey(); err != nil {
		t.Fatal(err)
	}
	a.Key = string(text)
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: begins, NotAfter: ends, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if text, err = pki.SignCertificate(template, template, a.key.Public(), a.key); err != nil {
		t.Fatal(err)
	}
	a.Cert = string(text)
	if a.cert, err = pki.ParseCertificate(text); err != nil {
		t.Fatal(err)
	}
	return a
}

// RenewCA returns a new certificate of the CA with the same key, in PEM form.
func (a *Authority) RenewCA(t testing.TB, ends time.Time) string {
	t.Helper()
	template := *a.cert
	template.NotAfter = ends
	text, err := pki.SignCertificate(&template, &template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// IssueCertificate returns a certificate and its key, in PEM form. Its validity begins with its CA,
// as in kubeadm, and it is for the given name or address.
func (a *Authority) IssueCertificate(t testing.TB, name string, ends time.Time) (cert, key string) {
	t.Helper()
	signer, text, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	ips := []net.IP{net.IPv4(127, 0, 0, 1)}
	if ip := net.ParseIP(name); ip != nil {
		ips = append(ips, ip)
	}
	signed, err := pki.SignCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: []string{"system:nodes"}}, NotBefore: a.cert.NotBefore, NotAfter: ends,
		DNSNames: []string{name, "localhost"}, IPAddresses: ips, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, signer.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return string(signed), string(text)
}

// MakeKubeconfig returns a kubeconfig as kubeadm writes it, with a token if that is not
// empty.
func MakeKubeconfig(server, ca, token, cert, key string) string {
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	out := fmt.Sprintf(`apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: %s
    server: %s
  name: prod
contexts:
- context:
    cluster: prod
    user: someone
  name: someone@prod
current-context: someone@prod
kind: Config
users:
- name: someone
  user:
    client-certificate-data: %s
    client-key-data: %s
`, encode(ca), server, encode(cert), encode(key))
	if token != "" {
		out += "    token: " + token + "\n"
	}
	return out
}
