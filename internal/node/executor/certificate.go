//go:build linux

package executor

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// certificateOp executes op.Certificate.
type certificateOp struct{ o op.Certificate }

func (x *certificateOp) Paths() []string {
	return named(x.o.Cert, x.o.Key, x.o.CAKey)
}

func (x *certificateOp) LedgerEntries() ([]subject, bool) {
	return []subject{{ledger.KindPath, x.o.Cert}, {ledger.KindPath, x.o.Key}}, true
}

// certificateRequestOp executes op.CertificateRequest.
type certificateRequestOp struct{ o op.CertificateRequest }

func (x *certificateRequestOp) Paths() []string {
	return []string{x.o.Cert, x.o.Key}
}

func (x *certificateOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	o, err := s.withCA(o)
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

// withCA reads the CA certificate that an operation names by its file. A missing file
// means that it is not known yet.
func (s *session) withCA(o op.Certificate) (op.Certificate, error) {
	if o.CAFile == "" {
		return o, nil
	}
	var err error
	o.CA, err = s.read(o.CAFile)
	return o, err
}

// pairChange describes the change of a pair.
func pairChange(o op.Certificate, cert *x509.Certificate, key crypto.Signer, now time.Time) (string, error) {
	switch {
	case o.Authority && cert != nil && !pki.Belong(cert, key):
		// A new CA would lock out every client of the old one.
		return "", &op.Error{Reason: "AuthorityKeyLost", Message: fmt.Sprintf("the CA %s exists, but %s is not its key", o.Cert, o.Key)}
	case cert == nil:
		return "create", nil
	case o.Authority:
		return "", nil
	case !pki.Belong(cert, key):
		return "renew: the key has changed", nil
	}
	wish := pki.Wish{Validity: time.Duration(o.ValiditySeconds) * time.Second, Due: o.Due,
		Within: time.Duration(o.WithinSeconds) * time.Second}
	var end time.Time
	if ca, err := pki.Certificate(o.CA); err == nil { // else it is not known yet
		end = ca.NotAfter
	}
	if why := wish.Unmet(cert, end, now); why != "" {
		return why, nil
	}
	want, err := pki.Template(o, now)
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
	ca, err := pki.Certificate(o.CA)
	if err != nil {
		return "", err
	}
	if cert.CheckSignatureFrom(ca) != nil {
		return "renew: the CA has changed", nil
	}
	return "", nil
}

// pair reads a certificate and a key. Missing or damaged files, which a crash may have
// left, are nil.
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
	key, _ := pki.Key(keyPEM) // a damaged one is created again
	return cert, key, nil
}

// Check reports a key to create, or returns the request of the existing one.
func (x *certificateRequestOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	cert, key, err := s.pair(o.Certificate)
	if err != nil {
		return verdict{}, err
	}
	if key == nil {
		return verdict{change: "create", wrote: map[string]string{o.Key: ""}}, nil
	}
	change, err := pairChange(o.Certificate, cert, key, time.Now())
	if err != nil || change == "" {
		return verdict{}, err
	}
	request, err := pki.Request(key)
	return verdict{output: request}, err
}

// Apply creates the key.
func (x *certificateRequestOp) Apply(_ context.Context, s *session, res *op.Result) error {
	o := x.o
	key, err := s.makeKey(o.Key)
	if err != nil {
		return err
	}
	res.Output, err = pki.Request(key)
	return err
}

// Apply writes the key first: after a crash, a certificate without its key
// would be useless, but not a key without its certificate.
func (x *certificateOp) Apply(_ context.Context, s *session, _ *op.Result) error {
	o := x.o
	o, err := s.withCA(o)
	if err != nil {
		return err
	}
	_, key, err := s.pair(o)
	if err != nil {
		return err
	}
	if !o.Authority && o.CAKey == "" {
		return s.install(o, key)
	}
	if key == nil {
		if key, err = s.makeKey(o.Key); err != nil {
			return err
		}
	}
	text, err := s.sign(o, key)
	if err != nil {
		return fmt.Errorf("signing %s: %w", o.Cert, err)
	}
	return s.write(o.Cert, text, atomicfile.Meta{Mode: 0o644})
}

// install writes the certificate from the manager, if it is the requested one.
func (s *session) install(o op.Certificate, key crypto.Signer) error {
	cert, err := pki.Certificate(o.Signed)
	if err != nil {
		return fmt.Errorf("reading what the manager has signed: %w", err)
	}
	// The new certificate is not due: only the previous one was.
	o.Due, o.WithinSeconds = "", 0
	if why, err := pairChange(o, cert, key, time.Now()); err != nil || why != "" {
		return errors.Join(err, fmt.Errorf("the certificate from the manager is not valid for this host: %s", why))
	}
	return s.write(o.Cert, o.Signed, atomicfile.Meta{Mode: 0o644})
}

func (s *session) makeKey(path string) (crypto.Signer, error) {
	key, text, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	return key, s.write(path, text, atomicfile.Meta{Mode: 0o600})
}

// noCA returns the error for a certificate whose CA is not on the host.
func noCA(o op.Certificate) error {
	files := o.CAKey
	if o.CAFile != "" {
		files = o.CAFile + " or " + o.CAKey
	}
	return &op.Error{Reason: op.IDAuthorityNoKey, Message: fmt.Sprintf("cannot sign %s: %s is not on this host", o.Cert, files)}
}

// sign signs with the CA's key that is on the host.
func (s *session) sign(o op.Certificate, key crypto.Signer) ([]byte, error) {
	cert, err := pki.Template(o, time.Now())
	if err != nil {
		return nil, err
	}
	if o.Authority {
		return pki.Sign(cert, cert, key.Public(), key)
	}
	if o.CAFile != "" && o.CA == nil {
		return nil, noCA(o)
	}
	ca, err := pki.Certificate(o.CA)
	if err != nil {
		return nil, err
	}
	text, err := s.read(o.CAKey)
	if err != nil {
		return nil, err
	}
	if text == nil {
		return nil, noCA(o)
	}
	caKey, err := pki.Key(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", o.CAKey, err)
	}
	if !pki.Belong(ca, caKey) {
		return nil, pki.ErrNotPair
	}
	return pki.Sign(cert, ca, key.Public(), caKey)
}
