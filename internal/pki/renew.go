package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"fmt"
	"time"

	"slipway.dev/slipway/internal/node/op"
)

const (
	// backdate allows for differences between the clocks of hosts for a new certificate.
	backdate = 5 * time.Minute
	// lastPart is the fraction of the validity in which a certificate is renewed, the
	// last fifth; latePart is the fraction in which that is late.
	lastPart, latePart = 5, 10
	// fresh is the age below which a certificate is not renewed again, whatever is
	// requested, or that fraction of its validity.
	fresh, freshPart = time.Hour, 20
)

// LastPart reports whether the last fifth of a certificate's validity has begun.
func LastPart(begins, ends, now time.Time) bool { return inLast(lastPart, begins, ends, now) }

func inLast(part time.Duration, begins, ends, now time.Time) bool {
	return now.After(ends.Add(-ends.Sub(begins) / part))
}

// A File is a file to write.
type File struct {
	Path    string
	Content []byte
	Secret  bool // it contains a key
}

// RenewalReason returns the reason to renew a certificate, in words; "" if it is not due. The
// error, an *op.Error if it has its own reason, explains why it cannot be renewed
// although it is due.
func RenewalReason(read Read, o op.RenewCertificate, now time.Time) (string, error) {
	p, err := findPair(read, o.CertificateFile)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", o.Path, err)
	}
	if p.cert == nil {
		return "", nil
	}
	if o.Remade && o.Due != op.DueForeign {
		return pairRenewalReason(o, p, time.Time{}, now), nil
	}
	ca, err := authority(read, o.CA)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", o.CA, err)
	}
	foreign := p.cert.CheckSignatureFrom(ca) != nil
	why := pairRenewalReason(o, p, ca.NotAfter, now)
	if o.Due == op.DueForeign {
		if why = ""; foreign {
			why = "sign: its CA has changed"
		}
	}
	if why == "" || o.Remade {
		return why, nil
	}
	if foreign && o.Due != op.DueForeign {
		return "", &op.Error{
			Reason:  op.IDCertificateForeign,
			Message: fmt.Sprintf("%s is due for renewal (%s), but the CA in %s did not sign it", o.Path, why, o.CA),
		}
	}
	if now.After(ca.NotAfter) {
		return "", &op.Error{
			Reason:  op.IDAuthorityExpired,
			Message: fmt.Sprintf("%s is due for renewal (%s), but its CA in %s has expired", o.Path, why, o.CA),
		}
	}
	_, err = readSigner(read, o, ca)
	return why, err
}

// pairRenewalReason returns the reason to renew an existing pair. end is the end of its CA, if known.
func pairRenewalReason(o op.RenewCertificate, p pair, end, now time.Time) string {
	w := Wish{Validity: secondsToDuration(o.ValiditySeconds), Due: o.Due, Within: secondsToDuration(o.WithinSeconds)}
	why := w.UnmetReason(p.cert, end, now)
	if why == "" && o.Due != op.DueExpired && !IsPair(p.cert, p.key) {
		return "renew: its key has changed or is missing"
	}
	return why
}

func secondsToDuration(n int64) time.Duration { return time.Duration(n) * time.Second }

// A Wish is the wanted validity of a certificate, and the time of its renewal.
type Wish struct {
	Validity time.Duration
	Due      op.Due
	Within   time.Duration
}

// UnmetReason returns the reason for a new certificate, in words; "" if none is needed, or if a
// new one would not be valid for longer. caEnd is the end of the CA, if known.
func (w Wish) UnmetReason(cert *x509.Certificate, caEnd, now time.Time) string {
	next := now.Add(w.Validity)
	if !caEnd.IsZero() && caEnd.Before(next) {
		next = caEnd
	}
	// kubeadm lets certificates begin with their CA, which can be long ago.
	begins := cert.NotBefore
	if from := cert.NotAfter.Add(-w.Validity); from.After(begins) {
		begins = from
	}
	over := now.After(cert.NotAfter)
	wanted := over
	switch {
	case w.Due == op.DueExpired:
	case w.Due == op.DueLate:
		wanted = inLast(latePart, begins, cert.NotAfter, now)
	case w.Due == op.DueAlways:
		wanted = over || next.Sub(cert.NotAfter) > min(fresh, w.Validity/freshPart)
	case w.Within > 0:
		wanted = now.After(cert.NotAfter.Add(-w.Within))
	default:
		wanted = LastPart(begins, cert.NotAfter, now)
	}
	switch {
	case !wanted || !over && !next.After(cert.NotAfter):
		return ""
	case w.Due == op.DueAlways && !over:
		return "renew"
	}
	return "renew: it expires soon or has expired"
}

// readSigner returns the key of the CA.
func readSigner(read Read, o op.RenewCertificate, ca *x509.Certificate) (crypto.Signer, error) {
	text, err := read(o.CAKey)
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(text)
	if err != nil || !IsPair(ca, key) {
		what := "its key is missing in " + o.CAKey
		if err == nil {
			what = o.CAKey + " does not match it"
		}
		return nil, &op.Error{
			Reason:  op.IDAuthorityNoKey,
			Message: fmt.Sprintf("%s is due for renewal, but its CA in %s cannot sign: %s", o.Path, o.CA, what),
		}
	}
	return key, nil
}

// RenewCertificate renews a certificate that is due: it returns the files to write, in this order.
func RenewCertificate(read Read, o op.RenewCertificate, now time.Time) ([]File, error) {
	p, err := findPair(read, o.CertificateFile)
	if err != nil {
		return nil, err
	}
	ca, err := authority(read, o.CA)
	if err != nil {
		return nil, err
	}
	caKey, err := readSigner(read, o, ca)
	if err != nil {
		return nil, err
	}
	var newKey []byte
	if !IsPair(p.cert, p.key) {
		if p.key, newKey, err = NewKey(); err != nil {
			return nil, err
		}
	}
	old := p.cert
	text, err := SignCertificate(&x509.Certificate{
		RawSubject: old.RawSubject, NotBefore: now.Add(-backdate), NotAfter: now.Add(time.Duration(o.ValiditySeconds) * time.Second),
		DNSNames: old.DNSNames, IPAddresses: old.IPAddresses, EmailAddresses: old.EmailAddresses, URIs: old.URIs,
		KeyUsage: old.KeyUsage, ExtKeyUsage: old.ExtKeyUsage, BasicConstraintsValid: true,
	}, ca, p.key.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("signing %s: %w", o.Path, err)
	}
	return certificateFiles(o.CertificateFile, p.text, text, newKey), nil
}

// certificateFiles returns the files for a certificate, and for its key if it has changed. A
// separate key file is written first: after a crash, a certificate without its key would
// be useless, but not a key without its certificate.
func certificateFiles(f op.CertificateFile, text, cert, key []byte) (out []File) {
	if f.Key != "" {
		if key != nil {
			out = append(out, File{f.Key, key, true})
		}
		return append(out, File{f.Path, cert, false})
	}
	if !isPEM(text) {
		if key != nil {
			text = intoKubeconfig(text, userKey, key)
		}
		return []File{{f.Path, intoKubeconfig(text, userCertificate, cert), true}}
	}
	if key == nil {
		key = keyBlock(text)
	}
	return []File{{f.Path, bytes.Join([][]byte{cert, key}, nil), true}}
}
