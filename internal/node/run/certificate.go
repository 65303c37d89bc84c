//go:build linux

package run

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	"slipway.dev/slipway/internal/node/durable"
	"slipway.dev/slipway/internal/node/op"
)

const (
	// backdate is how far the clocks of hosts may differ for a certificate
	// that was made just now.
	backdate = 5 * time.Minute
	// lastPart of its time is when a certificate is renewed: the last fifth.
	lastPart = 5
)

func (s *session) checkCertificate(o op.Certificate) (verdict, error) {
	cert, key, err := s.pair(o)
	if err != nil {
		return verdict{}, err
	}
	var v verdict
	if v.change, err = pairChange(o, cert, key, time.Now()); err != nil || v.change == "" {
		return v, err
	}
	v.wrote = map[string]string{o.Cert: "", o.Key: ""} // not known before
	return v, nil
}

// pairChange says what has to be done about a pair, in words.
func pairChange(o op.Certificate, cert *x509.Certificate, key crypto.Signer, now time.Time) (string, error) {
	switch {
	case o.Authority && cert != nil && !matching(cert, key):
		// To make another would be to let nobody in who was let in so far.
		return "", &op.Error{Reason: "AuthorityKeyLost", Message: fmt.Sprintf("the authority %s is there, and %s is not its key", o.Cert, o.Key)}
	case cert == nil:
		return "create", nil
	case o.Authority:
		return "", nil
	case !matching(cert, key):
		return "renew: the key is another", nil
	case now.After(cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / lastPart)):
		return "renew: its time is nearly over, or over", nil
	}
	want, err := template(o, now)
	if err != nil {
		return "", err
	}
	if !sameUse(cert, want) {
		return "renew: names or purpose are others", nil
	}
	if len(o.CA) == 0 {
		return "", nil
	}
	ca, err := parseCertificate(o.CA)
	if err != nil {
		return "", err
	}
	if cert.CheckSignatureFrom(ca) != nil {
		return "renew: the authority is another", nil
	}
	return "", nil
}

func sameUse(have, want *x509.Certificate) bool {
	text := func(ips []net.IP) (out []string) {
		for _, ip := range ips {
			out = append(out, ip.String())
		}
		return out
	}
	return have.Subject.CommonName == want.Subject.CommonName && slices.Equal(have.DNSNames, want.DNSNames) &&
		slices.Equal(text(have.IPAddresses), text(want.IPAddresses)) && slices.Equal(have.ExtKeyUsage, want.ExtKeyUsage)
}

// template is a certificate as it is wanted, without a number.
func template(o op.Certificate, now time.Time) (*x509.Certificate, error) {
	if o.ValiditySeconds <= 0 || o.CommonName == "" {
		return nil, invalid("a certificate at %s needs a name and a time", o.Cert)
	}
	c := &x509.Certificate{
		Subject:   pkix.Name{CommonName: o.CommonName},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(time.Duration(o.ValiditySeconds) * time.Second),
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

// pair reads a certificate and a key. What is missing or damaged is nil: a
// crash may have left it.
func (s *session) pair(o op.Certificate) (*x509.Certificate, crypto.Signer, error) {
	certPEM, err := s.read(o.Cert)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err := s.read(o.Key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := parseCertificate(certPEM)
	if err != nil && o.Authority && len(certPEM) > 0 {
		return nil, nil, fmt.Errorf("reading %s: %w", o.Cert, err)
	}
	key, _ := parseKey(keyPEM) // a damaged one is made anew
	return cert, key, nil
}

func matching(cert *x509.Certificate, key crypto.Signer) bool {
	if cert == nil || key == nil {
		return false
	}
	public, ok := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(key.Public())
}

// applyCertificate writes the key first: without it the certificate would be
// of no use to whoever comes after a crash, and the other way round it is.
func (s *session) applyCertificate(o op.Certificate) error {
	now := time.Now()
	_, key, err := s.pair(o)
	if err != nil {
		return err
	}
	cert, err := template(o, now)
	if err != nil {
		return err
	}
	if key == nil {
		if key, err = s.makeKey(o.Key); err != nil {
			return err
		}
	}
	raw, err := sign(o, cert, key)
	if err != nil {
		return fmt.Errorf("signing %s: %w", o.Cert, err)
	}
	return s.write(o.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), durable.Meta{Mode: 0o644})
}

func (s *session) makeKey(path string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return key, s.write(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), durable.Meta{Mode: 0o600})
}

func sign(o op.Certificate, cert *x509.Certificate, key crypto.Signer) ([]byte, error) {
	ca, caKey := cert, key
	if !o.Authority {
		var err error
		if ca, err = parseCertificate(o.CA); err != nil {
			return nil, err
		}
		if caKey, err = parseKey(o.CAKey); err != nil {
			return nil, err
		}
		if !matching(ca, caKey) {
			return nil, errors.New("the authority's key is not that of its certificate")
		}
		if ca.NotAfter.Before(cert.NotAfter) {
			cert.NotAfter = ca.NotAfter
		}
	}
	var err error
	if cert.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, err
	}
	return x509.CreateCertificate(rand.Reader, cert, ca, key.Public(), caKey)
}

func parseCertificate(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(bytes.TrimSpace(text))
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("there is no certificate in it")
	}
	return x509.ParseCertificate(block.Bytes)
}

func parseKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("there is no key in it")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key cannot sign")
	}
	return signer, nil
}
