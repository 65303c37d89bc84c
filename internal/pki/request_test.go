package pki_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/pki/pkitest"
)

var signTime = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// wantedCertificate returns a certificate that a control plane needs.
func wantedCertificate(ca *pkitest.Authority) op.Certificate {
	return op.Certificate{
		Cert: "/pki/client.crt", Key: "/pki/client.key", CA: []byte(ca.Cert), CommonName: "kube-apiserver-etcd-client",
		Client: true, ValiditySeconds: 3600,
	}
}

func signingCA(t *testing.T) *pkitest.Authority {
	return pkitest.NewAuthority(t, "etcd-ca", signTime.AddDate(-1, 0, 0), signTime.AddDate(1, 0, 0))
}

func signRequest(t *testing.T, template *x509.CertificateRequest, key crypto.Signer) []byte {
	t.Helper()
	raw, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: raw})
}

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, _, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestSignRequest_TakesTheKeyAlone: the certificate has the names and uses that the
// manager sets, for the key of the request.
func TestSignRequest_TakesTheKeyAlone(t *testing.T) {
	ca, key := signingCA(t), newKey(t)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	isCA := pkix.Extension{Id: []int{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 3, 1, 1, 0xff}}
	serves := pkix.Extension{Id: []int{2, 5, 29, 37}, Value: []byte{0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 1}}
	for name, tc := range map[string]struct {
		reason  string
		request x509.CertificateRequest
		key     crypto.Signer
	}{
		"plain":   {"what the helper sends", x509.CertificateRequest{}, key},
		"ed25519": {"a key that somebody put there", x509.CertificateRequest{}, ed},
		"subject": {
			"it would be another client",
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "root", Organization: []string{"system:masters"}}},
			key,
		},
		"names": {
			"it would be a member of etcd",
			x509.CertificateRequest{DNSNames: []string{"e1"}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)}},
			key,
		},
		"extensions": {"it would be a CA, or a server", x509.CertificateRequest{ExtraExtensions: []pkix.Extension{isCA, serves}}, key},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := pki.SignRequest(signRequest(t, &tc.request, tc.key), wantedCertificate(ca), []byte(ca.Key), signTime)
			if err != nil {
				t.Fatal(err)
			}
			cert, err := pki.ParseCertificate(text)
			if err != nil {
				t.Fatal(err)
			}
			root, err := pki.ParseCertificate([]byte(ca.Cert))
			if err != nil {
				t.Fatal(err)
			}
			if err := cert.CheckSignatureFrom(root); err != nil {
				t.Error(err)
			}
			if !pki.IsPair(cert, tc.key) {
				t.Error("it is of another key")
			}
			want := map[string]any{
				"subject": "CN=kube-apiserver-etcd-client", "CA": false, "uses": []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
				"usage": x509.KeyUsageDigitalSignature, "dns": []string(nil), "ips": []net.IP(nil),
				"begins": root.NotBefore, "ends": signTime.Add(time.Hour),
			}
			got := map[string]any{
				"subject": cert.Subject.String(), "CA": cert.IsCA, "uses": cert.ExtKeyUsage,
				"usage": cert.KeyUsage, "dns": cert.DNSNames, "ips": cert.IPAddresses, "begins": cert.NotBefore, "ends": cert.NotAfter,
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

// TestSignRequest_Refuses what nothing may be issued for.
func TestSignRequest_Refuses(t *testing.T) {
	ca := signingCA(t)
	good := signRequest(t, &x509.CertificateRequest{}, newKey(t))
	weakCurve, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	broken := func() []byte {
		block, _ := pem.Decode(good)
		raw := bytes.Clone(block.Bytes)
		raw[len(raw)-1] ^= 1
		return pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: raw})
	}
	other := signingCA(t)
	for name, tc := range map[string]struct {
		reason  string
		request []byte
		change  func(*op.Certificate)
		want    string
	}{
		"weak curve":       {"it can be broken", signRequest(t, &x509.CertificateRequest{}, weakCurve), nil, "P-224"},
		"short RSA key":    {"it can be broken", signRequest(t, &x509.CertificateRequest{}, short), nil, "1024 bits"},
		"broken signature": {"who sent it may not have the key", broken(), nil, "does not match its key"},
		"a certificate":    {"it is not a request", []byte(ca.Cert), nil, "exactly one certificate request"},
		"nothing":          {"the host sent nothing", nil, nil, "exactly one certificate request"},
		"too much":         {"it is no request of any key", append(bytes.Repeat([]byte("\n"), 20<<10), good...), nil, "more than"},
		"a CA":             {"no host gets one this way", good, func(o *op.Certificate) { o.Authority = true }, "cannot request a CA"},
		"another CA": {
			"the key is not that of the certificate", good,
			func(o *op.Certificate) { o.CA = []byte(other.Cert) }, "does not match its certificate",
		},
		"no validity": {"it would be worth nothing", good, func(o *op.Certificate) { o.ValiditySeconds = 0 }, "needs a name and a validity"},
	} {
		t.Run(name, func(t *testing.T) {
			o := wantedCertificate(ca)
			if tc.change != nil {
				tc.change(&o)
			}
			text, err := pki.SignRequest(tc.request, o, []byte(ca.Key), signTime)
			if text != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%q, %v, want %q: %s", text, err, tc.want, tc.reason)
			}
			var refused *op.Error
			if is := errors.As(err, &refused) && refused.Reason == op.IDCertificateRequest; is != (tc.change == nil) {
				t.Errorf("its reason is %+v", refused)
			}
		})
	}
}

// FuzzSignRequest: no request makes a certificate that is not what the manager wants.
func FuzzSignRequest(f *testing.F) {
	ca := pkitest.NewAuthority(f, "etcd-ca", signTime.AddDate(-1, 0, 0), signTime.AddDate(1, 0, 0))
	key, _, err := pki.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	seed, err := pki.NewRequest(key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(ca.Cert))
	f.Fuzz(func(t *testing.T, text []byte) {
		signed, err := pki.SignRequest(text, wantedCertificate(ca), []byte(ca.Key), signTime)
		if err != nil {
			return
		}
		cert, err := pki.ParseCertificate(signed)
		if err != nil || cert.IsCA || cert.Subject.String() != "CN=kube-apiserver-etcd-client" || len(cert.DNSNames)+len(cert.IPAddresses) > 0 {
			t.Errorf("%v, %+v", err, cert)
		}
	})
}
