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

// encrypted is how a value begins that an API server has encrypted: then come
// the provider, its version, and the name of a key.
const encrypted = "k8s:enc:"

// An Encryption is what is said of an encryption configuration here: its keys, by
// the provider that goes by them.
type Encryption struct{ keys map[string][]encryptionKey }

type encryptionKey struct {
	Name   string `yaml:"name"`
	Secret string `yaml:"secret"`
}

// ReadEncryption reads an API server's encryption configuration; nil is another
// file.
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

// ErrOutside is a value that only a service beside the cluster can decrypt.
var ErrOutside = errors.New("only the key management service that has encrypted it can decrypt it")

// Open answers the value of a key of etcd as it was before it was encrypted, and
// how that was done: "" for not at all. The methods of nil are those of no
// configuration.
func (e *Encryption) Open(key string, value []byte) (plain []byte, how string, err error) {
	rest, ok := bytes.CutPrefix(value, []byte(encrypted))
	if !ok {
		return value, "", nil
	}
	head := bytes.SplitN(rest, []byte(":"), 4)
	if len(head) != 4 {
		return nil, "", errors.New("how it is encrypted cannot be read")
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
		return nil, how, fmt.Errorf("it is encrypted by %s with a key %q, which is not there", provider, name)
	}
	secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(all[i].Secret))
	if err != nil {
		return nil, how, fmt.Errorf("the key %q cannot be read", name)
	}
	plain, err = decrypt(provider, secret, key, text)
	return plain, how, err
}

// OpenSecret says how the value of a Secret was read, as Open does. What comes of it
// must be one.
func (e *Encryption) OpenSecret(key string, value []byte) (how string, err error) {
	plain, how, err := e.Open(key, value)
	if err == nil && !bytes.Contains(plain, []byte("Secret")) { // its kind, however it is encoded
		err = errors.New("what comes of it is no Secret")
	}
	return how, err
}

var errCipher = errors.New("it cannot be decrypted with the key of that name")

// decrypt undoes what a provider of API servers' has done.
func decrypt(provider string, secret []byte, key string, text []byte) ([]byte, error) {
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
	return unchained(block, text)
}

// unchained decrypts what aescbc has encrypted: after its initial block, padded
// to whole ones.
func unchained(block cipher.Block, text []byte) ([]byte, error) {
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
