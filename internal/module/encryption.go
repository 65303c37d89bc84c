package module

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
)

// EncryptionFile holds the keys with which the API server of a control plane encrypts its
// data in etcd.
const EncryptionFile = spec.EncryptionFile

// Plain is the provider that does not encrypt.
const Plain = "identity"

// An EncryptionKey is one way to encrypt: a provider and the name of a key.
type EncryptionKey struct {
	Provider, Name string
	Secret         secret.String // in base64, as API servers read it
}

// IsSameKey reports whether two keys have the same provider and name; their secrets are not
// compared.
func (k EncryptionKey) IsSameKey(other EncryptionKey) bool {
	return k.Provider == other.Provider && k.Name == other.Name
}

// ValuePrefix returns the prefix of values in etcd that are encrypted with the key; "" for
// values that are not encrypted.
func (k EncryptionKey) ValuePrefix() string {
	if k.Provider == Plain {
		return ""
	}
	return "k8s:enc:" + k.Provider + ":v1:" + k.Name + ":"
}

// An Encryption lists, by resource, the keys that an API server reads with. It writes with
// the first one. A resource without keys is not encrypted.
type Encryption map[string][]EncryptionKey

// KeysFor returns the keys that a resource is read with.
func (e Encryption) KeysFor(resource string) []EncryptionKey {
	if keys := e[resource]; len(keys) > 0 {
		return keys
	}
	return []EncryptionKey{{Provider: Plain}}
}

type encryptionDocument struct {
	APIVersion string               `json:"apiVersion"`
	Kind       string               `json:"kind"`
	Resources  []encryptionResource `json:"resources"`
}

type encryptionResource struct {
	Resources []string             `json:"resources"`
	Providers []encryptionProvider `json:"providers"`
}

type encryptionProvider struct {
	Secretbox *encryptionKeys `json:"secretbox,omitempty"`
	AESCBC    *encryptionKeys `json:"aescbc,omitempty"`
	AESGCM    *encryptionKeys `json:"aesgcm,omitempty"`
	Identity  *struct{}       `json:"identity,omitempty"`
}

type encryptionKeys struct {
	Keys []encryptionNamed `json:"keys"`
}

type encryptionNamed struct {
	Name   string `json:"name"`
	Secret string `json:"secret"`
}

// listKeys returns the keys of a provider, in their order.
func (p encryptionProvider) listKeys() (out []EncryptionKey) {
	if p.Identity != nil {
		return []EncryptionKey{{Provider: Plain}}
	}
	for _, of := range []struct {
		provider string
		keys     *encryptionKeys
	}{{"secretbox", p.Secretbox}, {"aescbc", p.AESCBC}, {"aesgcm", p.AESGCM}} {
		if of.keys == nil {
			continue
		}
		for _, k := range of.keys.Keys {
			out = append(out, EncryptionKey{of.provider, k.Name, secret.New(k.Secret)})
		}
	}
	return out
}

// ParseEncryption parses the output of Bytes. Its errors do not contain any of the text.
func ParseEncryption(text []byte) (Encryption, error) {
	var doc encryptionDocument
	if err := yaml.UnmarshalStrict(text, &doc); err != nil || doc.Kind != "EncryptionConfiguration" {
		return nil, fmt.Errorf("%s does not have the format that Slipway writes", EncryptionFile)
	}
	out := Encryption{}
	for _, r := range doc.Resources {
		var keys []EncryptionKey
		for _, p := range r.Providers {
			keys = append(keys, p.listKeys()...)
		}
		for _, k := range keys {
			if _, err := base64.StdEncoding.DecodeString(k.Secret.Reveal()); err != nil ||
				k.Provider != Plain && (k.Name == "" || k.Secret.IsZero()) {
				return nil, fmt.Errorf("%s has an invalid key", EncryptionFile)
			}
		}
		for _, name := range r.Resources {
			if len(keys) == 0 || out[name] != nil {
				return nil, fmt.Errorf("%s has an invalid entry for %s", EncryptionFile, name)
			}
			out[name] = keys
		}
	}
	return out, nil
}

// Bytes returns the file that an API server reads.
func (e Encryption) Bytes() ([]byte, error) {
	doc := encryptionDocument{APIVersion: "apiserver.config.k8s.io/v1", Kind: "EncryptionConfiguration"}
	for _, name := range slices.Sorted(maps.Keys(e)) {
		r := encryptionResource{Resources: []string{name}}
		for _, k := range e[name] {
			keys := &encryptionKeys{Keys: []encryptionNamed{{k.Name, k.Secret.Reveal()}}}
			switch k.Provider {
			case "secretbox":
				r.Providers = append(r.Providers, encryptionProvider{Secretbox: keys})
			case "aescbc":
				r.Providers = append(r.Providers, encryptionProvider{AESCBC: keys})
			case "aesgcm":
				r.Providers = append(r.Providers, encryptionProvider{AESGCM: keys})
			default:
				r.Providers = append(r.Providers, encryptionProvider{Identity: &struct{}{}})
			}
		}
		doc.Resources = append(doc.Resources, r)
	}
	return yaml.Marshal(doc)
}

// WithKeysOf returns e with the keys of other after its own: it writes as before, and reads
// everything that either of them reads.
func (e Encryption) WithKeysOf(other Encryption) Encryption {
	out := Encryption{}
	for _, name := range slices.Sorted(maps.Keys(e)) {
		out[name] = MergeKeys(e.KeysFor(name), other.KeysFor(name)...)
	}
	for _, name := range slices.Sorted(maps.Keys(other)) {
		out[name] = MergeKeys(e.KeysFor(name), other.KeysFor(name)...)
	}
	return out
}

// MergeKeys returns keys followed by the keys in more that are missing.
func MergeKeys(keys []EncryptionKey, more ...EncryptionKey) []EncryptionKey {
	out := slices.Clone(keys)
	for _, k := range more {
		if !slices.ContainsFunc(out, k.IsSameKey) {
			out = append(out, k)
		}
	}
	return out
}

// FindEncryptionFile returns the path of the encryption configuration in the manifest of an API
// server; "" if there is none.
func FindEncryptionFile(manifest []byte) (string, error) {
	var pod struct {
		Spec struct {
			Containers []struct {
				Command []string `json:"command"`
				Args    []string `json:"args"`
			} `json:"containers"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(manifest, &pod); err != nil {
		return "", fmt.Errorf("reading the API server's manifest: %w", err)
	}
	for _, c := range pod.Spec.Containers {
		for _, arg := range slices.Concat(c.Command, c.Args) {
			if at, ok := strings.CutPrefix(arg, "--"+spec.EncryptionFlag+"="); ok {
				return at, nil
			}
		}
	}
	return "", nil
}
