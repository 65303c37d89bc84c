package pki_test

import (
	"encoding/base64"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/pki"
)

// TestPublicKeys_HaveTheirIDs: keys are read in their order, each with the id that tokens name
// it by.
func TestPublicKeys_HaveTheirIDs(t *testing.T) {
	var text []byte
	var want []string
	for range 2 {
		private, err := pki.NewSigningKey()
		if err != nil {
			t.Fatal(err)
		}
		key, err := pki.ParseKey(private)
		if err != nil {
			t.Fatal(err)
		}
		public, err := pki.EncodePublic(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		id, err := pki.KeyID(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		text, want = append(text, public...), append(want, id)
	}
	keys, err := pki.PublicKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range keys {
		got = append(got, k.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for name, bad := range map[string]string{"nothing": "", "no key": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"} {
		if keys, err := pki.PublicKeys([]byte(bad)); err == nil {
			t.Errorf("%s: %d keys", name, len(keys))
		}
	}
}

// TestSignedBy_NamesTheKey: a token names the key that has signed it. Other text names no key.
func TestSignedBy_NamesTheKey(t *testing.T) {
	head := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	for token, want := range map[string]string{
		head(`{"alg":"RS256","kid":"abc"}`) + ".e30.sig": "abc",
		head(`{"alg":"RS256"}`) + ".e30.sig":             "",
		head(`[]`):                                       "",
		"not a token":                                    "",
		"":                                               "",
	} {
		if got := pki.SignedBy(token); got != want {
			t.Errorf("%q is signed by %q, want %q", token, got, want)
		}
	}
}
