package backup

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

const (
	// signedText precedes the header in the signed bytes, so that a signature of
	// anything else is never accepted as the signature of a set.
	signedText = "slipway backup set\n"
	// signedName precedes the name of a copy in the input of its tag.
	signedName = "slipway backup copy\n"
	// publicPrefix is the beginning of the text of a public key.
	publicPrefix = "ed25519:"
	// tagBytes is the length of the tag of a name, in bytes.
	tagBytes = 10
)

// A SigningKey signs the backup sets of one cluster.
type SigningKey struct{ private ed25519.PrivateKey }

// A PublicKey verifies the signatures of one SigningKey. The zero value verifies
// none.
type PublicKey struct{ key string }

// A Signature is the signature of a set, with the bytes of the header that it covers. The
// header has the hash of every other file of the set.
type Signature struct{ Head, Value []byte }

// NewSigningKey returns a new signing key in PEM form.
func NewSigningKey() ([]byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ParseSigningKey reads a key that NewSigningKey generated. Its errors do not quote the
// key.
func ParseSigningKey(text []byte) (*SigningKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("the file does not contain a key for signing backup sets")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New("the file does not contain an Ed25519 key for signing backup sets")
	}
	return &SigningKey{private}, nil
}

// PublicKey returns the public key.
func (k *SigningKey) PublicKey() PublicKey {
	if k == nil {
		return PublicKey{}
	}
	public, _ := k.private.Public().(ed25519.PublicKey) // always an ed25519.PublicKey
	return PublicKey{string(public)}
}

// signHeader returns the signature of a header.
func (k *SigningKey) signHeader(head []byte) []byte {
	return ed25519.Sign(k.private, append([]byte(signedText), head...))
}

// Tag returns a short authentication code for the name of a copy, which only a holder
// of the key can compute. It is "" without a key.
func (k *SigningKey) Tag(name string) string {
	if k == nil {
		return ""
	}
	mac := hmac.New(sha256.New, k.private.Seed())
	_, _ = mac.Write([]byte(signedName + name)) // never fails
	return hex.EncodeToString(mac.Sum(nil)[:tagBytes])
}

// ParsePublicKey reads the text that String returns.
func ParsePublicKey(text string) (PublicKey, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), publicPrefix)
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(raw) != ed25519.PublicKeySize {
		return PublicKey{}, fmt.Errorf("%.80q is not a public key: want %s and 44 characters", text, publicPrefix)
	}
	return PublicKey{string(raw)}, nil
}

// String returns the key as text, "" for the zero value.
func (k PublicKey) String() string {
	if k.key == "" {
		return ""
	}
	return publicPrefix + base64.StdEncoding.EncodeToString([]byte(k.key))
}

// IsSignerOf reports whether a signature was made with the matching private key. It returns
// false for nil, the signature of an unsigned set.
func (k PublicKey) IsSignerOf(s *Signature) bool {
	return s != nil && len(k.key) == ed25519.PublicKeySize &&
		ed25519.Verify(ed25519.PublicKey(k.key), append([]byte(signedText), s.Head...), s.Value)
}
