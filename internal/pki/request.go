package pki

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
	"fmt"
	"net"
	"slices"
	"time"

	"slipway.dev/slipway/internal/node/op"
)

const (
	pemRequest = "CERTIFICATE REQUEST"
	// maxRequest is more than the size of a request with the largest key, in PEM form.
	maxRequest = 16 << 10
	// leastRSA and mostRSA limit the sizes of RSA keys in requests.
	leastRSA, mostRSA = 2048, 8192
)

// NewTemplate returns a certificate for an operation, without a serial number.
func NewTemplate(o op.Certificate, now time.Time) (*x509.Certificate, error) {
	if o.ValiditySeconds <= 0 || o.CommonName == "" {
		return nil, &op.Error{Reason: "Invalid", Message: fmt.Sprintf("a certificate at %s needs a name and a validity", o.Cert)}
	}
	c := &x509.Certificate{
		Subject:   pkix.Name{CommonName: o.CommonName},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(secondsToDuration(o.ValiditySeconds)),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
	}
	if o.Authority {
		c.KeyUsage, c.IsCA = x509.KeyUsageDigitalSignature|x509.KeyUsageCertSign, true
	}
	for _, name := range o.Names {
		if ip := net.ParseIP(name); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
			continue
		}
		c.DNSNames = append(c.DNSNames, name)
	}
	if o.Server {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if o.Client {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	return c, nil
}

// SameUse reports whether two certificates have the same names and usage.
func SameUse(have, want *x509.Certificate) bool {
	text := func(ips []net.IP) (out []string) {
		for _, ip := range ips {
			out = append(out, ip.String())
		}
		return out
	}
	return have.Subject.CommonName == want.Subject.CommonName && slices.Equal(have.DNSNames, want.DNSNames) &&
		slices.Equal(text(have.IPAddresses), text(want.IPAddresses)) && slices.Equal(have.ExtKeyUsage, want.ExtKeyUsage)
}

// NewRequest returns a request for a certificate of a key, in PEM form. It has no names: the
// signer decides on names and usage.
func NewRequest(key crypto.Signer) ([]byte, error) {
	raw, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("creating a certificate request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemRequest, Bytes: raw}), nil
}

// SignRequest signs a host's request with a CA, both in PEM form. It uses only the public
// key of the request, after it has verified that the request is signed with that key and
// the key is strong. Names, usage and validity come from the operation, whatever the
// request contains.
func SignRequest(request []byte, o op.Certificate, caKey []byte, now time.Time) ([]byte, error) {
	req, err := ParseRequest(request)
	if err != nil {
		return nil, &op.Error{Reason: op.IDCertificateRequest, Message: fmt.Sprintf("the request for %s is rejected: %v", o.Cert, err)}
	}
	if o.Authority {
		return nil, errors.New("a host cannot request a CA")
	}
	ca, err := ParseCertificate(o.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the CA that signs %s: %w", o.Cert, err)
	}
	key, err := ParseKey(caKey)
	if err != nil {
		return nil, fmt.Errorf("reading the key of the CA that signs %s: %w", o.Cert, err)
	}
	if !IsPair(ca, key) {
		return nil, fmt.Errorf("signing %s: %w", o.Cert, ErrNotPair)
	}
	cert, err := NewTemplate(o, now)
	if err != nil {
		return nil, err
	}
	if ca.NotBefore.Before(cert.NotBefore) { // the clocks of hosts can differ from the manager's
		cert.NotBefore = ca.NotBefore
	}
	return SignCertificate(cert, ca, req.PublicKey, key)
}

// ErrNotPair reports that a CA's certificate and key do not match.
var ErrNotPair = errors.New("the CA's key does not match its certificate")

// ParseRequest reads one PEM certificate request. The request must be signed with its own
// key, and the key must be strong. It does not check names and usage.
func ParseRequest(text []byte) (*x509.CertificateRequest, error) {
	if len(text) > maxRequest {
		return nil, fmt.Errorf("it has more than %d bytes", maxRequest)
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != pemRequest || len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("it does not contain exactly one certificate request in PEM form")
	}
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	if err := checkKeyStrength(req.PublicKey); err != nil { // first: a signature of a huge key takes long to check
		return nil, err
	}
	if err := req.CheckSignature(); err != nil {
		return nil, fmt.Errorf("its signature does not match its key: %w", err)
	}
	return req, nil
}

// checkKeyStrength rejects keys for which no certificate may be issued.
func checkKeyStrength(key crypto.PublicKey) error {
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		if !slices.Contains([]elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()}, k.Curve) {
			return fmt.Errorf("its key uses the curve %s", k.Curve.Params().Name)
		}
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < leastRSA || n > mostRSA {
			return fmt.Errorf("its RSA key has %d bits, but %d to %d are allowed", n, leastRSA, mostRSA)
		}
	case ed25519.PublicKey:
	default:
		return errors.New("its key has an unknown type")
	}
	return nil
}
