package spec

import (
	"crypto/ed25519"
	"encoding/base64"
	"strings"

	"slipway.dev/slipway/internal/spec/yamlfile"
)

// checkBundle rejects a value that is neither a path nor a reference to a registry, which
// begins with a host and ends with a tag or a digest.
func (v *validator) checkBundle() {
	b := v.c.Spec.Bundle
	if b == "" || IsBundlePath(b) {
		return
	}
	text, scheme := strings.CutPrefix(b, "oci://")
	host, rest, _ := strings.Cut(text, "/")
	file := "./" + text
	if strings.Contains(text, "@") { // it can contain a password
		file = "./FILE"
	}
	hint := "write " + file + " for a file next to this one, or registry.example.com/slipway:v1.37.1 for a bundle in a registry"
	switch {
	case rest == "" || !scheme && host != localhost && !strings.ContainsAny(host, ".:"):
		v.refuse(idInvalidValue, "spec.bundle", quoteAddress(b)+" is neither a path nor a reference to a registry", hint)
	case !strings.ContainsAny(text[strings.LastIndex(text, "/"):], ":@"):
		v.refuse(idInvalidValue, "spec.bundle", quoteAddress(b)+" is a reference to a registry, without a tag or a digest", hint)
	}
}

// checkBundleKeys requires the form that package bundle reads. An invalid value is not
// printed, because it can be a private key.
func (v *validator) checkBundleKeys() {
	v.warnRepeated("spec.bundleKeys", v.c.Spec.BundleKeys, func(key string) string {
		if !strings.HasPrefix(key, "ed25519:") {
			return ""
		}
		return key
	})
	for i, key := range v.c.Spec.BundleKeys {
		raw, ok := strings.CutPrefix(key, "ed25519:")
		data, err := base64.StdEncoding.Strict().DecodeString(raw)
		if !ok || err != nil || len(data) != ed25519.PublicKeySize {
			v.refuse(idBundleKey, yamlfile.IndexPath("spec.bundleKeys", i), "this is not a public key for bundles",
				"copy the line from NAME.pub, which 'slipway bundle keygen NAME' writes: ed25519:…")
		}
	}
}
