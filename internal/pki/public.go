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

// signingBits is the size of keys that sign tokens, as kubeadm makes them.
const signingBits = 2048

// NewSigningKey makes a key that API servers sign tokens with, in PEM form.
func NewSigningKey() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, signingBits)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), nil
}

// EncodePublic is a public key in PEM form.
func EncodePublic(key crypto.PublicKey) ([]byte, error) {
	raw, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: raw}), nil
}

// A PublicKey is one that API servers verify tokens with.
type PublicKey struct {
	// ID is what tokens that were signed with it name it by.
	ID   string
	Text []byte // in PEM form
}

// PublicKeys are those in a text in PEM form, in their order.
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

// KeyID is the name by which tokens that an API server has signed name the key:
// a digest of it in PKIX form.
func KeyID(key crypto.PublicKey) (string, error) {
	raw, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encoding a key: %w", err)
	}
	sum := sha256.Sum256(raw)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// SignedBy is the name of the key that a token was signed with; "" if it says
// none, or is no token.
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
