package backup

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/nacl/secretbox"
)

// encrypted is the beginning of every value that an API server has encrypted. The
// provider, its version and the key name follow.
const encrypted = "k8s:enc:"

// An Encryption holds the keys of an encryption configuration by provider.
type Encryption struct{ keys map[string][]encryptionKey }

type encryptionKey struct {
	Name   string `yaml:"name"`
	Secret string `yaml:"secret"`
}

// ReadEncryption reads an API server's encryption configuration. It returns nil for any
// other file.
func ReadEncryption(text []byte) (*Encryption, error) {
	type keyed struct {
		Keys []encryptionKey `yaml:"keys"`
	}
	var conf struct {
		Kind      string `yaml:"kind"`
		Resources []struct {
			Providers []struct {
				AESCBC    *keyed `yaml:"aescbc"`
				AESGCM    *keyed `yaml:"aesgcm"`
				Secretbox *keyed `yaml:"secretbox"`
			} `yaml:"providers"`
		} `yaml:"resources"`
	}
	if !bytes.Contains(text, []byte("EncryptionConfiguration")) {
		return nil, nil
	}
	if err := yaml.Unmarshal(text, &conf); err != nil {
		return nil, fmt.Errorf("reading the encryption configuration: %w", err)
	}
	e := &Encryption{keys: map[string][]encryptionKey{}}
	for _, r := range conf.Resources {
		for _, p := range r.Providers {
			for name, k := range map[string]*keyed{"aescbc": p.AESCBC, "aesgcm": p.AESGCM, "secretbox": p.Secretbox} {
				if k != nil {
					e.keys[name] = append(e.keys[name], k.Keys...)
				}
			}
		}
	}
	return e, nil
}

// ErrOutside is returned for a value that only an external service can decrypt.
var ErrOutside = errors.New("the value can be decrypted only by the key management service that encrypted the value")

// DecryptValue returns the decrypted value of an etcd key, and how it was encrypted: "" if it was
// not. A nil *Encryption means that there is no configuration; its methods can be called.
func (e *Encryption) DecryptValue(key string, value []byte) (plain []byte, how string, err error) {
	rest, ok := bytes.CutPrefix(value, []byte(encrypted))
	if !ok {
		return value, "", nil
	}
	head := bytes.SplitN(rest, []byte(":"), 4)
	if len(head) != 4 {
		return nil, "", errors.New("its encryption header cannot be read")
	}
	provider, name, text := string(head[0]), string(head[2]), head[3]
	how = provider + ", key " + name
	if provider == "kms" {
		return nil, how, ErrOutside
	}
	var all []encryptionKey
	if e != nil {
		all = e.keys[provider]
	}
	i := slices.IndexFunc(all, func(k encryptionKey) bool { return k.Name == name })
	if i < 0 {
		return nil, how, fmt.Errorf("it is encrypted by %s with key %q, which is missing", provider, name)
	}
	secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(all[i].Secret))
	if err != nil {
		return nil, how, fmt.Errorf("key %q cannot be read", name)
	}
	plain, err = decryptValue(provider, secret, key, text)
	return plain, how, err
}

// OpenSecret decrypts the value of a Secret like DecryptValue, and checks that the result is a
// Secret.
func (e *Encryption) OpenSecret(key string, value []byte) (how string, err error) {
	plain, how, err := e.DecryptValue(key, value)
	if err == nil && !bytes.Contains(plain, []byte("Secret")) { // its kind, however it is encoded
		err = errors.New("the decrypted value is not a Secret")
	}
	return how, err
}

var errCipher = errors.New("it cannot be decrypted with the key of that name")

// decryptValue decrypts a value of an encryption provider.
func decryptValue(provider string, secret []byte, key string, text []byte) ([]byte, error) {
	if provider == "secretbox" {
		const nonce = 24
		if len(secret) != 32 || len(text) < nonce {
			return nil, errCipher
		}
		plain, ok := secretbox.Open(nil, text[nonce:], (*[nonce]byte)(text[:nonce]), (*[32]byte)(secret))
		if !ok {
			return nil, errCipher
		}
		return plain, nil
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, errCipher
	}
	if provider == "aesgcm" {
		gcm, err := cipher.NewGCM(block)
		if err != nil || len(text) < gcm.NonceSize() {
			return nil, errCipher
		}
		plain, err := gcm.Open(nil, text[:gcm.NonceSize()], text[gcm.NonceSize():], []byte(key))
		if err != nil {
			return nil, errCipher
		}
		return plain, nil
	}
	return decryptCBC(block, text)
}

// decryptCBC decrypts an aescbc value: the initialization vector comes first, and the text
// is padded to full blocks.
func decryptCBC(block cipher.Block, text []byte) ([]byte, error) {
	if len(text) < 2*aes.BlockSize || len(text)%aes.BlockSize != 0 {
		return nil, errCipher
	}
	plain := make([]byte, len(text)-aes.BlockSize)
	cipher.NewCBCDecrypter(block, text[:aes.BlockSize]).CryptBlocks(plain, text[aes.BlockSize:])
	n := int(plain[len(plain)-1])
	if n == 0 || n > aes.BlockSize || !bytes.Equal(plain[len(plain)-n:], bytes.Repeat([]byte{byte(n)}, n)) {
		return nil, errCipher
	}
	return plain[:len(plain)-n], nil
}
