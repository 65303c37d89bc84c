package pki

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/x509"
	"slices"

	"slipway.dev/slipway/internal/node/op"
)

// Read returns the content of a file; nothing if it does not exist.
type Read func(path string) ([]byte, error)

// pair is an existing certificate and its key.
type pair struct {
	text []byte // of the certificate's file
	cert *x509.Certificate
	key  crypto.Signer // nil if it is missing or cannot be read
}

// findPair reads a certificate and its key. Without the certificate the pair is empty, also
// for a kubeconfig that names files instead.
func findPair(read Read, f op.CertificateFile) (p pair, err error) {
	if p.text, err = read(f.Path); err != nil || len(p.text) == 0 {
		return p, err
	}
	cert, key := p.text, p.text
	if !isPEM(p.text) {
		if cert, err = inKubeconfig(p.text, userCertificate); err == nil && cert == nil && !bytes.Contains(p.text, []byte("kind: Config")) {
			err = errNoCertificate
		}
		if err != nil || cert == nil {
			return p, err
		}
		if key, err = inKubeconfig(p.text, userKey); err != nil {
			return p, err
		}
	}
	if f.Key != "" {
		if key, err = read(f.Key); err != nil {
			return p, err
		}
	}
	if p.cert, err = ParseCertificate(cert); err != nil {
		return p, err
	}
	p.key, _ = ParseKey(key) // a damaged one counts as missing
	return p, nil
}

// ReadState returns the state of a certificate on a host.
func ReadState(read Read, f op.CertificateFile) op.CertificateState {
	s := op.CertificateState{Path: f.Path}
	p, err := findPair(read, f)
	switch {
	case err != nil:
		s.Problem = err.Error()
		return s
	case p.cert == nil:
		s.Missing = true
		return s
	}
	s.Subject = cmp.Or(p.cert.Subject.CommonName, p.cert.Subject.String())
	s.Issuer = cmp.Or(p.cert.Issuer.CommonName, p.cert.Issuer.String())
	s.Authority, s.Begins, s.Ends = p.cert.IsCA, p.cert.NotBefore.UTC(), p.cert.NotAfter.UTC()
	s.NoKey = p.key == nil
	s.OtherKey = p.key != nil && !IsPair(p.cert, p.key)
	if s.Authority {
		if all, err := ParseAuthorities(p.text); err == nil {
			s.Beside = len(all) - 1
			s.KeyBeside = s.OtherKey && slices.ContainsFunc(all, func(a Authority) bool {
				cert, err := ParseCertificate(a.Text)
				return err == nil && IsPair(cert, p.key)
			})
		}
	}
	if f.CA != "" {
		ca, err := authority(read, f.CA)
		s.Foreign = err == nil && p.cert.CheckSignatureFrom(ca) != nil // the state of that file reports it if it cannot be read
	}
	return s
}

func authority(read Read, path string) (*x509.Certificate, error) {
	text, err := read(path)
	if err != nil {
		return nil, err
	}
	return ParseCertificate(text)
}
