package kubeconfig

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/internal/pki"
)

// An Untrusted holds the kubeconfig of a host. Root on that host controls its content, so
// only Verify reads it.
type Untrusted struct {
	// Text is the file; nil if there is none.
	Text []byte
	// CAs are the CA certificates, in PEM form, that the cluster trusts during a CA
	// rotation. They replace the CA certificates in Text.
	CAs []byte
}

// ErrOtherCA means that the CA of a kubeconfig is not the saved one.
var ErrOtherCA = errors.New("its CA is neither the saved CA of this cluster nor signed by it")

// Verify returns the certificates of a kubeconfig from a host; the caller sets
// Cluster and Server. The client certificate and its key must be a pair, and
// signed by one of the CAs that are returned. Of the CAs in the file, those are
// returned that known, in PEM form, contains or has signed. Without known, the
// first kubeconfig of a cluster is trusted.
func (u Untrusted) Verify(known []byte) (Admin, error) {
	if len(u.Text) > maxAdmin {
		return Admin{}, fmt.Errorf("it has %d bytes; the limit is %d", len(u.Text), maxAdmin)
	}
	var f file
	if err := yaml.Unmarshal(u.Text, &f); err != nil { // every other field is dropped
		return Admin{}, errors.New("it is not a kubeconfig") // the original error would quote the file
	}
	from, err := f.currentAdmin()
	if err != nil {
		return Admin{}, err
	}
	cas := u.CAs
	if len(cas) == 0 {
		if cas, err = trustedCAs(from.CA, known); err != nil {
			return Admin{}, err
		}
	}
	cert, err := pki.ParseCertificate(from.Certificate)
	if err != nil {
		return Admin{}, fmt.Errorf("reading its client certificate: %w", err)
	}
	key := matchingKey(cert, from.Key)
	if key == nil {
		return Admin{}, errors.New("its client certificate has no key that belongs to it")
	}
	if !isSignedByAny(cert, cas) {
		return Admin{}, errors.New("its client certificate is not signed by the cluster CA")
	}
	return Admin{CA: cas, Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), Key: key}, nil
}

// matchingKey returns the key of a certificate from a text in PEM form; nil if the
// text does not have it.
func matchingKey(cert *x509.Certificate, text []byte) []byte {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		alone := pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})
		if key, err := pki.ParseKey(alone); err == nil && pki.IsPair(cert, key) {
			return alone
		}
	}
	return nil
}

// trustedCAs returns the CAs that known contains or has signed. Without known, it returns
// all CAs.
func trustedCAs(cas, known []byte) ([]byte, error) {
	theirs, err := pki.ParseAuthorities(cas)
	if err != nil {
		return nil, fmt.Errorf("reading its CA: %w", err)
	}
	if len(known) > 0 {
		recorded, err := pki.ParseAuthorities(known)
		if err != nil {
			return nil, fmt.Errorf("reading the saved CA: %w", err)
		}
		theirs = slices.DeleteFunc(theirs, func(a pki.Authority) bool {
			cert, err := pki.ParseCertificate(a.Text)
			return err != nil || !pki.TrustsCA(recorded, a.ID) && !(cert.IsCA && isSignedByAny(cert, known))
		})
	}
	if len(theirs) == 0 {
		return nil, ErrOtherCA
	}
	return pki.BundleCAs(theirs...), nil
}

// isSignedByAny reports whether one of the CAs, in PEM form, has signed a
// certificate.
func isSignedByAny(cert *x509.Certificate, cas []byte) bool {
	all, err := pki.ParseAuthorities(cas)
	return err == nil && slices.ContainsFunc(all, func(a pki.Authority) bool {
		ca, err := pki.ParseCertificate(a.Text)
		return err == nil && cert.CheckSignatureFrom(ca) == nil
	})
}
