package bundle_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
)

func newTestKeys(t *testing.T) (bundle.SigningKey, bundle.Key) {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "release")
	made, err := bundle.GenerateKey(prefix)
	if err != nil {
		t.Fatal(err)
	}
	private, err := bundle.ReadSigningKey(prefix + ".key")
	if err != nil {
		t.Fatal(err)
	}
	public, err := bundle.ReadKey(prefix + ".pub")
	if err != nil || public != made || private.Public() != made {
		t.Fatalf("the pair does not fit: %v", err)
	}
	if again, err := bundle.ReadKey(made.String()); err != nil || again != made {
		t.Errorf("unchanged: %v", err)
	}
	return private, public
}

// A device is endless, and cannot be a key, manifest, credentials file or certificate.
func TestBundle_RefusesDevicesAsFiles(t *testing.T) {
	const device = "/dev/zero"
	_, err := bundle.ReadKey(device)
	_, signingErr := bundle.ReadSigningKey(device)
	_, wantedErr := bundle.ReadWanted(device)
	_, credentialsErr := bundle.Registry{Credentials: device}.AccessOptions(t.Context(), "registry.example.com")
	_, authorityErr := bundle.Registry{CA: device}.AccessOptions(t.Context(), "registry.example.com")
	for _, err := range []error{err, signingErr, wantedErr, credentialsErr, authorityErr} {
		if err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%v", err)
		}
	}
}

func TestGenerateKey_LeavesNoHalfPair(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("nowhere/x", filepath.Join(dir, "half.pub")); err != nil { // nothing can be written through it
		t.Fatal(err)
	}
	for name, prefix := range map[string]string{
		"no name":      "",
		"a directory":  dir + "/",
		"no directory": filepath.Join(dir, "gone", "k"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(dir)
			_, err := bundle.GenerateKey(prefix)
			if got := diagnosticIDs(t, err); !slices.Equal(got, []string{bundle.IDKey}) {
				t.Errorf("got %v", got)
			}
		})
	}
	_, err := bundle.GenerateKey(filepath.Join(dir, "half"))
	if got := diagnosticIDs(t, err); !slices.Equal(got, []string{bundle.IDKeyThere}) {
		t.Errorf("with something by the name of a half: %v", got)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestGenerateKey_WritesPrivateAndPublicKey(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "k")
	if _, err := bundle.GenerateKey(prefix); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(prefix + ".key")
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the private key has mode %v, %v", info.Mode(), err)
	}
	for _, gone := range []string{".key", ".pub"} {
		before, err := os.ReadFile(prefix + map[string]string{".key": ".pub", ".pub": ".key"}[gone])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(prefix+gone, prefix+gone+".away"); err != nil {
			t.Fatal(err)
		}
		_, err = bundle.GenerateKey(prefix)
		if got := diagnosticIDs(t, err); !slices.Equal(got, []string{bundle.IDKeyThere}) {
			t.Errorf("with one existing file: %v", got)
		}
		after, err := os.ReadFile(prefix + map[string]string{".key": ".pub", ".pub": ".key"}[gone])
		if err != nil || string(before) != string(after) {
			t.Errorf("a key was overwritten: %v", err)
		}
		if err := os.Rename(prefix+gone+".away", prefix+gone); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSign_SignsEveryFormOfBundle: a signature is part of each form of a bundle and does
// not change its content.
func TestSign_SignsEveryFormOfBundle(t *testing.T) {
	b := bundletest.BuildBundle(t, "amd64")
	private, public := newTestKeys(t)
	_, stranger := newTestKeys(t)
	reg := bundletest.NewRegistry(t, true)
	old := bundletest.NewRegistry(t, false)
	dir := t.TempDir()
	for name, to := range map[string]struct {
		path string
		at   bundle.Registry
	}{
		"directory":             {filepath.Join(dir, "d") + "/", bundle.Registry{}},
		"file":                  {filepath.Join(dir, "b.tar.zst"), bundle.Registry{}},
		"registry":              {reg.Host + "/a/b:v1", reg.At},
		"registry without them": {old.Host + "/a/b:v1", old.At},
	} {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			var err error
			registry := bundle.IsReference(to.path) && to.at.CA != ""
			if registry {
				_, err = bundle.Push(t.Context(), b, to.path, to.at)
			} else {
				err = bundle.Export(t.Context(), b, to.path)
			}
			if err != nil {
				t.Fatal(err)
			}
			get := func(keys ...bundle.Key) (*bundle.Bundle, error) {
				if registry {
					return bundle.Pull(t.Context(), to.path, cache, to.at, keys...)
				}
				return bundle.Import(t.Context(), to.path, cache, keys...)
			}
			if _, err := get(public); !slices.Equal(diagnosticIDs(t, err), []string{bundle.IDUnsigned}) || len(cacheEntries(t, cache)) > 0 {
				t.Errorf("unsigned: %v", err)
			}
			// It is opened, and cached so, before it is signed.
			if _, err := bundle.Open(t.Context(), to.path, cache, to.at); err != nil {
				t.Fatal(err)
			}
			if _, err := bundle.Sign(t.Context(), to.path, cache, private, to.at, time.Now()); err != nil {
				t.Fatal(err)
			}
			if opened, err := bundle.Open(t.Context(), to.path, cache, to.at); err != nil || opened.CheckSigned([]bundle.Key{public}) != nil {
				t.Errorf("opened in place, it is not signed: %v", err)
			}
			if _, err := get(stranger); !slices.Equal(diagnosticIDs(t, err), []string{bundle.IDUnsigned}) || len(cacheEntries(t, cache)) > 0 {
				t.Errorf("signed by another: %v", err)
			}
			got, err := get(stranger, public)
			if err != nil {
				t.Fatal(err)
			}
			wantSameBundle(t, b, got, cache)
			if !slices.Equal(got.SignedBy(), []string{public.Name()}) || !slices.Equal(b.SignedBy(), nil) {
				t.Errorf("signed by %v", got.SignedBy())
			}
			// And on, from there.
			on := filepath.Join(t.TempDir(), "on.tar.zst")
			if err := bundle.Export(t.Context(), got, on); err != nil {
				t.Fatal(err)
			}
			if _, err := bundle.Import(t.Context(), on, t.TempDir(), public); err != nil {
				t.Errorf("exported again: %v", err)
			}
		})
	}
}

// TestSign_IsValidForOneContentOnly: a signature is valid for one content only, also if a
// user copies it to another bundle.
func TestSign_IsValidForOneContentOnly(t *testing.T) {
	one, two := bundletest.BuildBundle(t, "amd64"), bundletest.BuildBundle(t, "arm64")
	private, public := newTestKeys(t)
	if _, err := bundle.Sign(t.Context(), one.Path(), t.TempDir(), private, bundle.Registry{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile(filepath.Join(one.Path(), "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	there, err := os.ReadFile(filepath.Join(two.Path(), "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	_, notes, _ := strings.Cut(string(index), `"annotations":`)
	forged := strings.TrimSuffix(string(there), "}]}") + `,"annotations":` + notes
	if err := os.WriteFile(filepath.Join(two.Path(), "index.json"), []byte(forged), 0o600); err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	_, err = bundle.Import(t.Context(), two.Path(), cache, public)
	if got := diagnosticIDs(t, err); !slices.Equal(got, []string{bundle.IDSignature}) || len(cacheEntries(t, cache)) > 0 {
		t.Errorf("got %v (%v)", got, err)
	}
	if _, err := bundle.Import(t.Context(), two.Path(), cache); err != nil {
		t.Errorf("without a key that must have signed: %v", err)
	}
	if _, ok := bundle.FindCached(cache, two.Manifest().Kubernetes, nil, public); ok {
		t.Error("the cache returns it as signed")
	}
	if _, err := bundle.Import(t.Context(), one.Path(), cache, public); err != nil {
		t.Fatal(err)
	}
	if path, ok := bundle.FindCached(cache, one.Manifest().Kubernetes, nil, public); !ok ||
		!strings.Contains(path, strings.TrimPrefix(one.Digest(), "sha256:")) {
		t.Errorf("the signed bundle was not found: %q", path)
	}
}

// TestImport_AddsSignatureToCachedBundle: a bundle in the cache without a signature gets
// it when a signed copy is imported.
func TestImport_AddsSignatureToCachedBundle(t *testing.T) {
	b := bundletest.BuildBundle(t, "amd64")
	private, public := newTestKeys(t)
	cache := t.TempDir()
	if _, err := bundle.Import(t.Context(), b.Path(), cache); err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.Sign(t.Context(), b.Path(), cache, private, bundle.Registry{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.Import(t.Context(), b.Path(), cache, public); err != nil {
		t.Fatal(err)
	}
	if _, ok := bundle.FindCached(cache, b.Manifest().Kubernetes, nil, public); !ok {
		t.Error("the cache did not take the signature")
	}
}

func TestParseKey_RefusesInvalidKeys(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(other)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(other.Public())
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for name, arg := range map[string]string{
		"none there": filepath.Join(dir, "none"), "short": "ed25519:AAAA", "no base64": "ed25519:?", "text": file("text", "hello"),
		"another kind": file("ec.pub", block("PUBLIC KEY", public)), "private": file("ec.key", block("PRIVATE KEY", private)),
	} {
		if _, err := bundle.ReadKey(arg); !slices.Equal(diagnosticIDs(t, err), []string{bundle.IDKey}) {
			t.Errorf("public, %s: %v", name, err)
		}
		if _, err := bundle.ReadSigningKey(arg); !slices.Equal(diagnosticIDs(t, err), []string{bundle.IDKey}) {
			t.Errorf("private, %s: %v", name, err)
		}
	}
}

// TestOpen_FindsSignatureAmongMany: a registry may return any number of foreign
// signatures before the valid one.
func TestOpen_FindsSignatureAmongMany(t *testing.T) {
	b := bundletest.BuildBundle(t, "amd64")
	private, public := newTestKeys(t)
	stranger, _ := newTestKeys(t)
	reg := bundletest.NewRegistry(t, true)
	ref := reg.Host + "/a/b:v1"
	if _, err := bundle.Push(t.Context(), b, ref, reg.At); err != nil {
		t.Fatal(err)
	}
	sign := func(key bundle.SigningKey) {
		if _, err := bundle.Sign(t.Context(), ref, t.TempDir(), key, reg.At, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	sign(stranger)
	if _, err := bundle.Open(t.Context(), ref, t.TempDir(), reg.At); err != nil {
		t.Fatal(err)
	}
	reg.CrowdSignatures(64)
	sign(private)
	cache := t.TempDir()
	opened, err := bundle.Open(t.Context(), ref, cache, reg.At)
	if err != nil || opened.CheckSigned([]bundle.Key{public}) == nil {
		t.Errorf("without keys, so many signatures are not read: %v", err)
	}
	for _, where := range []string{cache, t.TempDir()} { // the first has it unpacked already
		opened, err := bundle.Open(t.Context(), ref, where, reg.At, public)
		if err != nil {
			t.Fatal(err)
		}
		if err := opened.CheckSigned([]bundle.Key{public}); err != nil {
			t.Error(err)
		}
	}
}
