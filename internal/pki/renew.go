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
	// backdate is how far the clocks of hosts may differ for a certificate
	// that was made just now.
	backdate = 5 * time.Minute
	// lastPart of its time is when a certificate is renewed: the last fifth; and
	// latePart when that is late.
	lastPart, latePart = 5, 10
	// fresh is when one that was made is not made again, whatever is asked for,
	// or that part of its time.
	fresh, freshPart = time.Hour, 20
)

// LastPart says that the last fifth of a certificate's time has begun.
func LastPart(begins, ends, now time.Time) bool { return inLast(lastPart, begins, ends, now) }

func inLast(part time.Duration, begins, ends, now time.Time) bool {
	return now.After(ends.Add(-ends.Sub(begins) / part))
}

// A File is to be written.
type File struct {
	Path    string
	Content []byte
	Secret  bool // it holds a key
}

// Due is why a certificate is to be renewed, in words; "" is not. The error,
// an *op.Error if it has a reason of its own, is why it cannot be though it is
// due.
func Due(read Read, o op.Renewal, now time.Time) (string, error) {
	p, err := find(read, o.CertificateFile)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", o.Path, err)
	}
	if p.cert == nil {
		return "", nil
	}
	if o.Remade && o.Due != op.DueForeign {
		return due(o, p, time.Time{}, now), nil
	}
	ca, err := authority(read, o.CA)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", o.CA, err)
	}
	foreign := p.cert.CheckSignatureFrom(ca) != nil
	why := due(o, p, ca.NotAfter, now)
	if o.Due == op.DueForeign {
		if why = ""; foreign {
			why = "sign: its CA has changed"
		}
	}
	if why == "" || o.Remade {
		return why, nil
	}
	if foreign && o.Due != op.DueForeign {
		return "", &op.Error{Reason: op.IDCertificateForeign, Message: fmt.Sprintf("%s is due for renewal (%s), but the CA in %s did not sign it", o.Path, why, o.CA)}
	}
	if now.After(ca.NotAfter) {
		return "", &op.Error{Reason: op.IDAuthorityExpired, Message: fmt.Sprintf("%s is due for renewal (%s), but its CA in %s has expired", o.Path, why, o.CA)}
	}
	_, err = signer(read, o, ca)
	return why, err
}

// due is why a pair that was found is to be renewed. end is that of its
// authority, if that is known.
func due(o op.Renewal, p pair, end, now time.Time) string {
	w := Wish{Validity: seconds(o.ValiditySeconds), Due: o.Due, Within: seconds(o.WithinSeconds)}
	why := w.Unmet(p.cert, end, now)
	if why == "" && o.Due != op.DueExpired && !Belong(p.cert, p.key) {
		return "renew: its key has changed or is missing"
	}
	return why
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// A Wish is how long a certificate shall be valid, and when another is wanted.
type Wish struct {
	Validity time.Duration
	Due      op.Due
	Within   time.Duration
}

// Unmet is why another certificate is wanted, in words; "" is that none is, or
// that none would be valid for longer: authority is when its authority ends, if
// that is known.
func (w Wish) Unmet(cert *x509.Certificate, authority, now time.Time) string {
	next := now.Add(w.Validity)
	if !authority.IsZero() && authority.Before(next) {
		next = authority
	}
	// kubeadm has certificates begin with their authority, which may be long ago.
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

// signer is the authority's key.
func signer(read Read, o op.Renewal, ca *x509.Certificate) (crypto.Signer, error) {
	text, err := read(o.CAKey)
	if err != nil {
		return nil, err
	}
	key, err := Key(text)
	if err != nil || !Belong(ca, key) {
		what := "its key is missing in " + o.CAKey
		if err == nil {
			what = o.CAKey + " does not match it"
		}
		return nil, &op.Error{Reason: op.IDAuthorityNoKey, Message: fmt.Sprintf("%s is due for renewal, but its CA in %s cannot sign: %s", o.Path, o.CA, what)}
	}
	return key, nil
}

// Renew makes what Due asks for: the files to write, in this order.
func Renew(read Read, o op.Renewal, now time.Time) ([]File, error) {
	p, err := find(read, o.CertificateFile)
	if err != nil {
		return nil, err
	}
	ca, err := authority(read, o.CA)
	if err != nil {
		return nil, err
	}
	caKey, err := signer(read, o, ca)
	if err != nil {
		return nil, err
	}
	var newKey []byte
	if !Belong(p.cert, p.key) {
		if p.key, newKey, err = NewKey(); err != nil {
			return nil, err
		}
	}
	old := p.cert
	text, err := Sign(&x509.Certificate{
		RawSubject: old.RawSubject, NotBefore: now.Add(-backdate), NotAfter: now.Add(time.Duration(o.ValiditySeconds) * time.Second),
		DNSNames: old.DNSNames, IPAddresses: old.IPAddresses, EmailAddresses: old.EmailAddresses, URIs: old.URIs,
		KeyUsage: old.KeyUsage, ExtKeyUsage: old.ExtKeyUsage, BasicConstraintsValid: true,
	}, ca, p.key.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("signing %s: %w", o.Path, err)
	}
	return files(o.CertificateFile, p.text, text, newKey), nil
}

// files puts a certificate, and a key if it is another, where they are kept. A
// key in a file of its own is written first: without it the certificate would be
// of no use to whoever comes after a crash, and the other way round it is.
func files(f op.CertificateFile, text, cert, key []byte) (out []File) {
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
