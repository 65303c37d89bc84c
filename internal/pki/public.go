package pki

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// signingBits is the size of token signing keys, the same as in kubeadm.
const signingBits = 2048

// NewSigningKey returns a new key for API servers to sign tokens, in PEM form.
func NewSigningKey() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, signingBits)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), nil
}

// EncodePublic returns a public key in PEM form.
func EncodePublic(key crypto.PublicKey) ([]byte, error) {
	raw, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: raw}), nil
}

// A PublicKey is a key with which API servers verify tokens.
type PublicKey struct {
	// ID identifies the key in the tokens that it signed.
	ID   string
	Text []byte // in PEM form
}

// PublicKeys returns the public keys in a PEM text, in order.
func PublicKeys(text []byte) (out []PublicKey, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		var key any
		switch block.Type {
		case "PUBLIC KEY":
			key, err = x509.ParsePKIXPublicKey(block.Bytes)
		case "RSA PUBLIC KEY":
			key, err = x509.ParsePKCS1PublicKey(block.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		id, err := KeyID(key)
		if err != nil {
			return nil, err
		}
		out = append(out, PublicKey{ID: id, Text: pem.EncodeToMemory(block)})
	}
	if len(out) == 0 {
		return nil, errors.New("the file has no public key")
	}
	return out, nil
}

// KeyID returns the ID of a key in tokens of an API server: a digest of the key in PKIX
// form.
func KeyID(key crypto.PublicKey) (string, error) {
	raw, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encoding a key: %w", err)
	}
	sum := sha256.Sum256(raw)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// SignedBy returns the ID of the key that signed a token; "" if the token has none, or is
// not a token.
func SignedBy(token string) string {
	head, _, _ := strings.Cut(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil {
		return ""
	}
	var is struct {
		Kid string `json:"kid"`
	}
	if json.NewDecoder(bytes.NewReader(raw)).Decode(&is) != nil {
		return ""
	}
	return is.Kid
}
