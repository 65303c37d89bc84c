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

// An Authority is a CA certificate, as part of a list of trusted CAs.
type Authority struct {
	// ID is a digest of the certificate: successive CAs have the same name.
	ID   string
	Text []byte // in PEM form
	Ends time.Time
}

// ParseAuthorities returns the CAs in a PEM text, in order: the holder of the CA key signs
// with the first one.
func ParseAuthorities(text []byte) (out []Authority, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != pemCertificate {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(block.Bytes)
		out = append(out,
			Authority{
				ID:   hex.EncodeToString(sum[:]),
				Text: pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: block.Bytes}), Ends: cert.NotAfter.UTC(),
			})
	}
	if len(out) == 0 {
		return nil, errNoCertificate
	}
	return out, nil
}

// TrustsCA reports whether a bundle contains the CA with an ID.
func TrustsCA(bundle []Authority, id string) bool {
	return slices.ContainsFunc(bundle, func(a Authority) bool { return a.ID == id })
}

// BundleCAs returns a text with CAs, each once, in this order.
func BundleCAs(list ...Authority) []byte {
	var text [][]byte
	for i, a := range list {
		if !TrustsCA(list[:i], a.ID) {
			text = append(text, a.Text)
		}
	}
	return bytes.Join(text, nil)
}

// HasSigned reports whether a text has a certificate that the CA has signed for another
// subject, and that has not expired at a time: in PEM form, or as a certificate of a user
// of a kubeconfig. Text that cannot be read has none.
func (a Authority) HasSigned(text []byte, now time.Time) bool {
	shown := parseCertificates(text)
	if len(shown) == 0 {
		return false
	}
	ca, err := ParseCertificate(a.Text)
	return err == nil && slices.ContainsFunc(shown, func(c *x509.Certificate) bool {
		// A self-signed certificate is a CA: the same one, or one with the same key.
		return !now.After(c.NotAfter) && c.CheckSignatureFrom(ca) == nil && c.CheckSignatureFrom(c) != nil
	})
}

// shownByUser returns the certificates of the users of a kubeconfig, in any format.
var shownByUser = regexp.MustCompile(`client-certificate-data["']?:\s*["']?([A-Za-z0-9+/=]+)`)

// parseCertificates returns the readable certificates in a text.
func parseCertificates(text []byte) (out []*x509.Certificate) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == pemCertificate {
			out = append(out, cert)
		}
	}
	for _, found := range shownByUser.FindAllSubmatch(text, -1) {
		if inner, err := base64.StdEncoding.DecodeString(string(found[1])); err == nil {
			out = append(out, parseCertificates(inner)...)
		}
	}
	return out
}
