package pki

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"slices"
)

// An Authority is a certificate that others are signed by, as it stands among
// those that are trusted.
type Authority struct {
	// ID is a digest of the certificate: authorities that come after each other
	// have one name.
	ID   string
	Text []byte // in PEM form
}

// Authorities are those in a text in PEM form, in their order: the first is the
// one that whoever has its key signs with.
func Authorities(text []byte) (out []Authority, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != pemCertificate {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, err
		}
		sum := sha256.Sum256(block.Bytes)
		out = append(out, Authority{ID: hex.EncodeToString(sum[:]), Text: pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: block.Bytes})})
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
