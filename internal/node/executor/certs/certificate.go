//go:build linux

package certs

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// CertificateOp executes op.Certificate.
type CertificateOp struct{ Op op.Certificate }

func (x *CertificateOp) Paths() []string {
	return host.NonEmpty(x.Op.Cert, x.Op.Key, x.Op.CAKey)
}

func (x *CertificateOp) LedgerEntries() ([]host.Subject, bool) {
	return []host.Subject{{Kind: ledger.KindPath, Key: x.Op.Cert}, {Kind: ledger.KindPath, Key: x.Op.Key}}, true
}

// CertificateRequestOp executes op.CertificateRequest.
type CertificateRequestOp struct{ Op op.CertificateRequest }

func (x *CertificateRequestOp) Paths() []string {
	return []string{x.Op.Cert, x.Op.Key}
}

func (x *CertificateOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	o, err := withCA(h, o)
	if err != nil {
		return host.CheckResult{}, err
	}
	cert, key, err := ReadPair(h, o)
	if err != nil {
		return host.CheckResult{}, err
	}
	var v host.CheckResult
	if v.Change, err = PairChange(o, cert, key, time.Now()); err != nil || v.Change == "" {
		return v, err
	}
	v.Wrote = map[string]string{o.Cert: "", o.Key: ""} // not known before
	return v, nil
}

// withCA reads the CA certificate that an operation names by its file. A missing file
// means that it is not known yet.
func withCA(h *host.Host, o op.Certificate) (op.Certificate, error) {
	if o.CAFile == "" {
		return o, nil
	}
	var err error
	o.CA, err = h.ReadFile(o.CAFile)
	return o, err
}

// PairChange describes the change of a pair.
func PairChange(o op.Certificate, cert *x509.Certificate, key crypto.Signer, now time.Time) (string, error) {
	switch {
	case o.Authority && cert != nil && !pki.IsPair(cert, key):
		// A new CA would lock out every client of the old one.
		return "", &op.Error{Reason: "AuthorityKeyLost", Message: fmt.Sprintf("the CA %s exists, but %s is not its key", o.Cert, o.Key)}
	case cert == nil:
		return "create", nil
	case o.Authority:
		return "", nil
	case !pki.IsPair(cert, key):
		return "renew: the key has changed", nil
	}
	wish := pki.Wish{
		Validity: time.Duration(o.ValiditySeconds) * time.Second, Due: o.Due,
		Within: time.Duration(o.WithinSeconds) * time.Second,
	}
	var end time.Time
	if ca, err := pki.ParseCertificate(o.CA); err == nil { // else it is not known yet
		end = ca.NotAfter
	}
	if why := wish.UnmetReason(cert, end, now); why != "" {
		return why, nil
	}
	want, err := pki.NewTemplate(o, now)
	if err != nil {
		return "", err
	}
	if !pki.SameUse(cert, want) {
		return "renew: the names or the usage have changed", nil
	}
	if len(o.CA) == 0 && o.CAKey != "" {
		return "", nil // the existing CA signs again
	}
	if len(o.CA) == 0 {
		return "renew: the CA is being rotated", nil // and does not exist yet
	}
	ca, err := pki.ParseCertificate(o.CA)
	if err != nil {
		return "", err
	}
	if cert.CheckSignatureFrom(ca) != nil {
		return "renew: the CA has changed", nil
	}
	return "", nil
}

// ReadPair reads a certificate and a key. Missing or damaged files, which a crash may have
// left, are nil.
func ReadPair(h *host.Host, o op.Certificate) (*x509.Certificate, crypto.Signer, error) {
	certPEM, err := h.ReadFile(o.Cert)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err := h.ReadFile(o.Key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := pki.ParseCertificate(certPEM)
	if err != nil && o.Authority && len(certPEM) > 0 {
		return nil, nil, fmt.Errorf("reading %s: %w", o.Cert, err)
	}
	key, _ := pki.ParseKey(keyPEM) // a damaged one is created again
	return cert, key, nil
}

// Check reports a key to create, or returns the request of the existing one.
func (x *CertificateRequestOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	cert, key, err := ReadPair(h, o.Certificate)
	if err != nil {
		return host.CheckResult{}, err
	}
	if key == nil {
		return host.CheckResult{Change: "create", Wrote: map[string]string{o.Key: ""}}, nil
	}
	change, err := PairChange(o.Certificate, cert, key, time.Now())
	if err != nil || change == "" {
		return host.CheckResult{}, err
	}
	request, err := pki.NewRequest(key)
	return host.CheckResult{Output: request}, err
}

// Apply creates the key.
func (x *CertificateRequestOp) Apply(_ context.Context, h *host.Host, res *op.Result) error {
	o := x.Op
	key, err := makeKey(h, o.Key)
	if err != nil {
		return err
	}
	res.Output, err = pki.NewRequest(key)
	return err
}

// Apply writes the key first: after a crash, a certificate without its key
// would be useless, but not a key without its certificate.
func (x *CertificateOp) Apply(_ context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	o, err := withCA(h, o)
	if err != nil {
		return err
	}
	_, key, err := ReadPair(h, o)
	if err != nil {
		return err
	}
	if !o.Authority && o.CAKey == "" {
		return installCertificate(h, o, key)
	}
	if key == nil {
		if key, err = makeKey(h, o.Key); err != nil {
			return err
		}
	}
	text, err := signCertificate(h, o, key)
	if err != nil {
		return fmt.Errorf("signing %s: %w", o.Cert, err)
	}
	return hostfs.WriteFile(h, o.Cert, text, atomicfile.Meta{Mode: 0o644})
}

// installCertificate writes the certificate from the manager, if it is the requested one.
func installCertificate(h *host.Host, o op.Certificate, key crypto.Signer) error {
	cert, err := pki.ParseCertificate(o.Signed)
	if err != nil {
		return fmt.Errorf("reading what the manager has signed: %w", err)
	}
	// The new certificate is not due: only the previous one was.
	o.Due, o.WithinSeconds = "", 0
	if why, err := PairChange(o, cert, key, time.Now()); err != nil || why != "" {
		return errors.Join(err, fmt.Errorf("the certificate from the manager is not valid for this host: %s", why))
	}
	return hostfs.WriteFile(h, o.Cert, o.Signed, atomicfile.Meta{Mode: 0o644})
}

func makeKey(h *host.Host, path string) (crypto.Signer, error) {
	key, text, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	return key, hostfs.WriteFile(h, path, text, atomicfile.Meta{Mode: 0o600})
}

// removeCA returns the error for a certificate whose CA is not on the host.
func removeCA(o op.Certificate) error {
	files := o.CAKey
	if o.CAFile != "" {
		files = o.CAFile + " or " + o.CAKey
	}
	return &op.Error{Reason: op.IDAuthorityNoKey, Message: fmt.Sprintf("cannot sign %s: %s is not on this host", o.Cert, files)}
}

// signCertificate signs with the CA's key that is on the host.
func signCertificate(h *host.Host, o op.Certificate, key crypto.Signer) ([]byte, error) {
	cert, err := pki.NewTemplate(o, time.Now())
	if err != nil {
		return nil, err
	}
	if o.Authority {
		return pki.SignCertificate(cert, cert, key.Public(), key)
	}
	if o.CAFile != "" && o.CA == nil {
		return nil, removeCA(o)
	}
	ca, err := pki.ParseCertificate(o.CA)
	if err != nil {
		return nil, err
	}
	text, err := h.ReadFile(o.CAKey)
	if err != nil {
		return nil, err
	}
	if text == nil {
		return nil, removeCA(o)
	}
	caKey, err := pki.ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", o.CAKey, err)
	}
	if !pki.IsPair(ca, caKey) {
		return nil, pki.ErrNotPair
	}
	return pki.SignCertificate(cert, ca, key.Public(), caKey)
}
