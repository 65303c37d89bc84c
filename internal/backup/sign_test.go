package backup

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
)

// signingKey is a new one.
func signingKey(t testing.TB) *SigningKey {
	t.Helper()
	text, err := NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := ParseSigningKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// A signed set is verified by the public key of its signer and by no other key. A set
// without a signature is verified by no key.
func TestIsSignerOf_AcceptsOnlyMatchingKey(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	key, other := signingKey(t), signingKey(t)
	_, set, small := writeTestSet(t)
	for _, tc := range []struct {
		name     string
		by       Keys
		snapshot string
		verified bool
	}{
		{"plain", Keys{Signer: key}, fakeSnapshot(t, 20_000), true},
		{"encrypted", Keys{Signer: key, Recipients: []age.Recipient{id.Recipient()}}, fakeSnapshot(t, 20_000), true},
		{"keys alone", Keys{Signer: key}, "", true},
		{"signed by another key", Keys{Signer: other}, fakeSnapshot(t, 20_000), false},
		{"not signed", Keys{}, fakeSnapshot(t, 20_000), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file, one := filepath.Join(t.TempDir(), "set"), *set
			if err := Write(file, &one, small, tc.snapshot, tc.by); err != nil {
				t.Fatal(err)
			}
			got, _, err := Read(file, []age.Identity{id}, &bytes.Buffer{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(&one, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if got.KeysOnly() != (tc.snapshot == "") || key.PublicKey().IsSignerOf(got.Signature) != tc.verified {
				t.Errorf("format %d is verified: %t, want %t", got.Format, key.PublicKey().IsSignerOf(got.Signature), tc.verified)
			}
			if (PublicKey{}).IsSignerOf(got.Signature) {
				t.Error("the zero key verifies a signature")
			}
		})
	}
}

// replaceHeader changes the header of a signed set and keeps the signature, as an
// attacker without the key would.
func replaceHeader(t *testing.T, file string, change func(*Set)) string {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, out := tar.NewReader(in), &bytes.Buffer{}
	w := tar.NewWriter(out)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		raw, readErr := io.ReadAll(r)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		if h.Name == manifestName {
			set := &Set{}
			if err := json.Unmarshal(raw, set); err != nil {
				t.Fatal(err)
			}
			change(set)
			if raw, err = json.MarshalIndent(set, "", "  "); err != nil {
				t.Fatal(err)
			}
		}
		h.Size = int64(len(raw))
		if err := errors.Join(w.WriteHeader(h), errorOnly(w.Write(raw))); err != nil {
			t.Fatal(err)
		}
	}
	forged := filepath.Join(t.TempDir(), "forged.tar")
	if err := errors.Join(w.Close(), os.WriteFile(forged, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return forged
}

func errorOnly(_ int, err error) error { return err }

// No byte of the header can be changed, because the header has the hashes of all other
// files. After a refused header, nothing more is read.
func TestRead_RefusesForgedHeader(t *testing.T) {
	key := signingKey(t)
	_, set, small := writeTestSet(t)
	file := filepath.Join(t.TempDir(), "set.tar")
	if err := Write(file, set, small, fakeSnapshot(t, 20_000), Keys{Signer: key}); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("not verified")
	verify := func(s *Set) error {
		if !key.PublicKey().IsSignerOf(s.Signature) {
			return refused
		}
		return nil
	}
	for _, tc := range []struct {
		name string
		do   func(*Set)
		want error
	}{
		{"as it was", func(*Set) {}, nil},
		{"another revision", func(s *Set) { s.Snapshot.Revision++ }, refused},
		{"another file", func(s *Set) { s.Files[0].SHA256 = digestOf(nil) }, refused},
		{"said to be unsigned", func(s *Set) { s.Format = format }, refused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var db bytes.Buffer
			_, files, err := Read(replaceHeader(t, file, tc.do), nil, &db, verify)
			if !errors.Is(err, tc.want) || tc.want != nil && (db.Len() > 0 || files != nil) {
				t.Errorf("%v, want %v; %d bytes of the snapshot were read", err, tc.want, db.Len())
			}
		})
	}
	cut := replaceHeader(t, file, func(s *Set) { s.Format = signedKeysOnly })
	if _, err := ReadHeader(cut, nil); err == nil {
		t.Error("a set with keys only has a snapshot")
	}
}

func TestSigningKey_RefusesInvalidKeys(t *testing.T) {
	key := signingKey(t)
	if got, err := ParsePublicKey(" " + key.PublicKey().String() + "\n"); err != nil || got != key.PublicKey() {
		t.Errorf("%v is read as %v, %v", key.PublicKey(), got, err)
	}
	for _, bad := range []string{"", "ed25519:", "ed25519:AAAA", key.PublicKey().String()[8:], "rsa:" + key.PublicKey().String()[8:]} {
		if k, err := ParsePublicKey(bad); err == nil {
			t.Errorf("%q is read as %v", bad, k)
		}
	}
	for _, bad := range []string{"", "canary", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		if _, err := ParseSigningKey([]byte(bad)); err == nil {
			t.Errorf("%q is a key", bad)
		}
	}
	var none *SigningKey
	if none.Tag("a") != "" || none.PublicKey() != (PublicKey{}) || none.PublicKey().String() != "" {
		t.Error("a nil key returns tags or a public key")
	}
	if key.Tag("a") == key.Tag("b") || key.Tag("a") == signingKey(t).Tag("a") || len(key.Tag("a")) != 2*tagBytes {
		t.Errorf("the tags are %s and %s", key.Tag("a"), key.Tag("b"))
	}
}
