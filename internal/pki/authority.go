package pki

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"regexp"
	"slices"
	"time"
)

// An Authority is a certificate that others are signed by, as it stands among
// those that are trusted.
type Authority struct {
	// ID is a digest of the certificate: authorities that come after each other
	// have one name.
	ID   string
	Text []byte // in PEM form
	Ends time.Time
}

// Authorities are those in a text in PEM form, in their order: the first is the
// one that whoever has its key signs with.
func Authorities(text []byte) (out []Authority, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != pemCertificate {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(block.Bytes)
		out = append(out, Authority{ID: hex.EncodeToString(sum[:]), Text: pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: block.Bytes}), Ends: cert.NotAfter.UTC()})
	}
	if len(out) == 0 {
		return nil, errNoCertificate
	}
	return out, nil
}

// Trusts says that one of a bundle is the authority of an id.
func Trusts(bundle []Authority, id string) bool {
	return slices.ContainsFunc(bundle, func(a Authority) bool { return a.ID == id })
}

// Bundle is a text of authorities, each once, in this order.
func Bundle(list ...Authority) []byte {
	var text [][]byte
	for i, a := range list {
		if !Trusts(list[:i], a.ID) {
			text = append(text, a.Text)
		}
	}
	return bytes.Join(text, nil)
}

// HasSigned says that a text holds a certificate that the authority has signed for
// somebody, and that has not ended by a time: in PEM form, or as that of any user of a
// kubeconfig. What cannot be read is none.
func (a Authority) HasSigned(text []byte, now time.Time) bool {
	shown := certificates(text)
	if len(shown) == 0 {
		return false
	}
	ca, err := Certificate(a.Text)
	return err == nil && slices.ContainsFunc(shown, func(c *x509.Certificate) bool {
		// One that has signed itself is an authority: the same one, or one with its key.
		return !now.After(c.NotAfter) && c.CheckSignatureFrom(ca) == nil && c.CheckSignatureFrom(c) != nil
	})
}

// shownByUser is what a kubeconfig has its users show, in whatever form it is written.
var shownByUser = regexp.MustCompile(`client-certificate-data["']?:\s*["']?([A-Za-z0-9+/=]+)`)

// certificates are those in a text that can be read.
func certificates(text []byte) (out []*x509.Certificate) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == pemCertificate {
			out = append(out, cert)
		}
	}
	for _, found := range shownByUser.FindAllSubmatch(text, -1) {
		if inner, err := base64.StdEncoding.DecodeString(string(found[1])); err == nil {
			out = append(out, certificates(inner)...)
		}
	}
	return out
}
