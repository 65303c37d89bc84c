//go:build linux

package run

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"slipway.dev/slipway/internal/node/durable"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// backdate is how far the clocks of hosts may differ for a certificate that was
// made just now.
const backdate = 5 * time.Minute

func (s *session) checkCertificate(o op.Certificate) (verdict, error) {
	o, err := s.withAuthority(o)
	if err != nil {
		return verdict{}, err
	}
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

// withAuthority reads the authority of an operation that names its files. One that is
// not there yet is not known.
func (s *session) withAuthority(o op.Certificate) (op.Certificate, error) {
	if o.CAFile == "" {
		return o, nil
	}
	var err error
	if o.CA, err = s.read(o.CAFile); err == nil {
		o.CAKey, err = s.read(o.CAKeyFile)
	}
	return o, err
}

// pairChange says what has to be done about a pair, in words.
func pairChange(o op.Certificate, cert *x509.Certificate, key crypto.Signer, now time.Time) (string, error) {
	switch {
	case o.Authority && cert != nil && !pki.Belong(cert, key):
		// To make another would be to let nobody in who was let in so far.
		return "", &op.Error{Reason: "AuthorityKeyLost", Message: fmt.Sprintf("the authority %s is there, and %s is not its key", o.Cert, o.Key)}
	case cert == nil:
		return "create", nil
	case o.Authority:
		return "", nil
	case !pki.Belong(cert, key):
		return "renew: the key is another", nil
	}
	wish := pki.Wish{Validity: time.Duration(o.ValiditySeconds) * time.Second, Due: o.Due, Within: time.Duration(o.WithinSeconds) * time.Second}
	var end time.Time
	if ca, err := pki.Certificate(o.CA); err == nil { // else it is not known yet
		end = ca.NotAfter
	}
	if why := wish.Unmet(cert, end, now); why != "" {
		return why, nil
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
	ca, err := pki.Certificate(o.CA)
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
	cert, err := pki.Certificate(certPEM)
	if err != nil && o.Authority && len(certPEM) > 0 {
		return nil, nil, fmt.Errorf("reading %s: %w", o.Cert, err)
	}
	key, _ := pki.Key(keyPEM) // a damaged one is made anew
	return cert, key, nil
}

// applyCertificate writes the key first: without it the certificate would be
// of no use to whoever comes after a crash, and the other way round it is.
func (s *session) applyCertificate(o op.Certificate) error {
	now := time.Now()
	o, err := s.withAuthority(o)
	if err != nil {
		return err
	}
	if o.CAFile != "" && (len(o.CA) == 0 || len(o.CAKey) == 0) {
		return &op.Error{Reason: op.IDAuthorityNoKey, Message: fmt.Sprintf("cannot sign %s: %s or %s is not on this host", o.Cert, o.CAFile, o.CAKeyFile)}
	}
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
	text, err := sign(o, cert, key)
	if err != nil {
		return fmt.Errorf("signing %s: %w", o.Cert, err)
	}
	return s.write(o.Cert, text, durable.Meta{Mode: 0o644})
}

func (s *session) makeKey(path string) (crypto.Signer, error) {
	key, text, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	return key, s.write(path, text, durable.Meta{Mode: 0o600})
}

func sign(o op.Certificate, cert *x509.Certificate, key crypto.Signer) ([]byte, error) {
	if o.Authority {
		return pki.Sign(cert, cert, key.Public(), key)
	}
	ca, err := pki.Certificate(o.CA)
	if err != nil {
		return nil, err
	}
	caKey, err := pki.Key(o.CAKey)
	if err != nil {
		return nil, err
	}
	if !pki.Belong(ca, caKey) {
		return nil, errors.New("the authority's key is not that of its certificate")
	}
	return pki.Sign(cert, ca, key.Public(), caKey)
}
