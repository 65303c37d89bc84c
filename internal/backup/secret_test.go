package backup

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/crypto/nacl/secretbox"
)

const secretKey = "/registry/secrets/default/token"

// sealValue is a value as a provider of API servers' writes it.
func sealValue(t *testing.T, provider string, secret []byte, plain string) []byte {
	t.Helper()
	head := []byte("k8s:enc:" + provider + ":v1:one:")
	if provider == "secretbox" {
		nonce := [24]byte{1}
		return append(append(head, nonce[:]...), secretbox.Seal(nil, []byte(plain), &nonce, (*[32]byte)(secret))...)
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		t.Fatal(err)
	}
	if provider == "aesgcm" {
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			t.Fatal(err)
		}
		nonce := make([]byte, gcm.NonceSize())
		return append(append(head, nonce...), gcm.Seal(nil, nonce, []byte(plain), []byte(secretKey))...)
	}
	pad := aes.BlockSize - len(plain)%aes.BlockSize
	padded := append([]byte(plain), bytes.Repeat([]byte{byte(pad)}, pad)...)
	iv := bytes.Repeat([]byte{7}, aes.BlockSize)
	cipher.NewCBCEncrypter(block, iv).CryptBlocks(padded, padded)
	return append(append(head, iv...), padded...)
}

func encryptionOf(t *testing.T, provider string, secret []byte) *Encryption {
	t.Helper()
	e, err := ReadEncryption(fmt.Appendf(nil,
		"kind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - %s: {keys: [{name: one, "+
			"secret: %s}]}\n  - identity: {}\n",
		provider, base64.StdEncoding.EncodeToString(secret)))
	if err != nil || e == nil {
		t.Fatal(e, err)
	}
	return e
}

func TestDecryptValue_DecryptsEveryProvider(t *testing.T) {
	secret, other := bytes.Repeat([]byte{3}, 32), bytes.Repeat([]byte{4}, 32)
	for _, provider := range []string{"aescbc", "aesgcm", "secretbox"} {
		for _, plain := range []string{"k8s\x00a Secret", "0123456789abcdef"} {
			value := sealValue(t, provider, secret, plain)
			got, how, err := encryptionOf(t, provider, secret).DecryptValue(secretKey, value)
			if err != nil || string(got) != plain || how != provider+", key one" {
				t.Errorf("%s: %q, %q, %v", provider, got, how, err)
			}
			for _, short := range []int{0, 1, len(value) / 2} {
				if got, _, err := encryptionOf(t, provider, secret).DecryptValue(secretKey, value[:len(value)-1-short]); err == nil {
					t.Errorf("%s: what is cut off opens as %q", provider, got)
				}
			}
			if got, _, err := encryptionOf(t, provider, other).DecryptValue(secretKey, value); err == nil && string(got) == plain {
				t.Errorf("%s: another key opens it", provider)
			}
			if _, _, err := encryptionOf(t, "aesgcm", other[:16]).DecryptValue(secretKey, value[:20]); err == nil {
				t.Errorf("%s: a head alone opens", provider)
			}
		}
	}
	var none *Encryption
	if got, how, err := none.DecryptValue(secretKey, []byte("k8s\x00plain")); err != nil || how != "" || string(got) != "k8s\x00plain" {
		t.Errorf("a value without encryption: %q, %q, %v", got, how, err)
	}
	if _, _, err := none.DecryptValue(secretKey, sealValue(t, "aescbc", secret, "x")); err == nil ||
		!strings.Contains(err.Error(), "which is missing") {
		t.Errorf("without a configuration: %v", err)
	}
	if _, how, err := none.DecryptValue(secretKey, []byte("k8s:enc:kms:v2:vault:x")); !errors.Is(err, ErrOutside) || how != "kms, key vault" {
		t.Errorf("a value of a KMS service: %q, %v", how, err)
	}
	if how, err := none.OpenSecret(secretKey, []byte("k8s\x00\x12\x06Secret")); err != nil || how != "" {
		t.Errorf("a Secret: %q, %v", how, err)
	}
	if _, err := none.OpenSecret(secretKey, []byte("k8s\x00\x12\x09ConfigMap")); err == nil {
		t.Error("an object of another kind was accepted as a Secret")
	}
	if e, err := ReadEncryption([]byte("-----BEGIN CERTIFICATE-----")); e != nil || err != nil {
		t.Errorf("another file: %v, %v", e, err)
	}
}
