package bundle_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/bundle/layout"
)

// cacheEntries returns the bundles in a cache, and any other entries next to them.
func cacheEntries(t *testing.T, cache string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(cache, "bundles"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// wantSameBundle checks that a bundle is complete and that the cache has it under its
// version.
func wantSameBundle(t *testing.T, want, got *bundle.Bundle, cache string) {
	t.Helper()
	if err := got.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	path, ok := bundle.FindCached(cache, want.Manifest().Kubernetes, want.Manifest().Arches)
	if !ok || path != got.Path() || got.Digest() != want.Digest() {
		t.Errorf("%s is in the cache at %q (%v), want %s at %s", got.Digest(), path, ok, want.Digest(), got.Path())
	}
}

func TestExportImport_KeepsContent(t *testing.T) {
	want := bundletest.BuildBundle(t, "amd64", "arm64")
	dir := t.TempDir()
	for name, out := range map[string]string{"file": filepath.Join(dir, "sub", "b.tar.zst"), "directory": filepath.Join(dir, "d") + "/"} {
		t.Run(name, func(t *testing.T) {
			if err := bundle.Export(t.Context(), want, out); err != nil {
				t.Fatal(err)
			}
			cache := t.TempDir()
			for range 2 { // the second finds the first
				got, err := bundle.Import(t.Context(), out, cache)
				if err != nil {
					t.Fatal(err)
				}
				wantSameBundle(t, want, got, cache)
			}
			if got := cacheEntries(t, cache); len(got) != 2 {
				t.Errorf("the cache has %q, want the bundle and its name", got)
			}
		})
	}
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, []byte("somebody's own"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{"", precious} {
		if got := diagnosticIDs(t, bundle.Export(t.Context(), want, out)); !slices.Equal(got, []string{bundle.IDOut}) {
			t.Errorf("to %q: %v", out, got)
		}
	}
	if data, err := os.ReadFile(precious); err != nil || string(data) != "somebody's own" {
		t.Errorf("%q, %v", data, err)
	}
	if got := diagnosticIDs(t, bundle.Export(t.Context(), want, dir)); !slices.Equal(got, []string{bundle.IDOut}) {
		t.Errorf("to a directory without a slash: %v", got)
	}
}

// TestImport_LeavesNothingOfInvalidBundle: an incomplete or damaged bundle leaves nothing
// behind, wherever its fault is.
func TestImport_LeavesNothingOfInvalidBundle(t *testing.T) {
	b := bundletest.BuildBundle(t, "amd64")
	dir := t.TempDir()
	whole := filepath.Join(dir, "b.tar.zst")
	if err := bundle.Export(t.Context(), b, whole); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	lacking := filepath.Join(dir, "lacking")
	if err := bundle.Export(t.Context(), b, lacking+"/"); err != nil {
		t.Fatal(err)
	}
	c, err := b.Component("crictl", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(lacking, "blobs/sha256", strings.TrimPrefix(c.Digest, "sha256:")),
		make([]byte, c.Size), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ path, id string }{
		"half":          {file("half.tar.zst", data[:len(data)/2]), bundle.IDTruncated},
		"last byte":     {file("last.tar.zst", data[:len(data)-1]), bundle.IDTruncated},
		"other content": {lacking, bundle.IDCorrupt},
		"not there":     {filepath.Join(dir, "none"), bundle.IDNotFound},
		"empty":         {file("empty", nil), bundle.IDTruncated},
	} {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			_, err := bundle.Import(t.Context(), tt.path, cache)
			if got := diagnosticIDs(t, err); !slices.Equal(got, []string{tt.id}) {
				t.Errorf("got %v (%v), want %s", got, err, tt.id)
			}
			if got := cacheEntries(t, cache); len(got) > 0 {
				t.Errorf("left behind: %q", got)
			}
		})
	}
}

// TestImport_RefusesNamesOutsideCache: the version and architectures of a bundle become
// the name of a link, which must stay inside the cache. An empty bundle must not replace
// one with content.
func TestImport_RefusesNamesOutsideCache(t *testing.T) {
	for name, config := range map[string]string{
		"architecture": `{"schemaVersion":1,"kubernetes":"v1.37.1","arches":["a/../../../victim"],"source":"modules"}`,
		"version":      `{"schemaVersion":1,"kubernetes":"../../victim","arches":["amd64"],"source":"modules"}`,
		"nothing":      `{"schemaVersion":1,"kubernetes":"v1.37.1","arches":["amd64"],"source":"modules"}`,
	} {
		t.Run(name, func(t *testing.T) {
			above := t.TempDir()
			cache := filepath.Join(above, "cache")
			_, err := bundle.Import(t.Context(), craftBundle(t, config), cache)
			if got := diagnosticIDs(t, err); !slices.Equal(got, []string{bundle.IDInvalid}) {
				t.Errorf("got %v (%v)", got, err)
			}
			if got := cacheEntries(t, cache); len(got) > 0 {
				t.Errorf("left behind: %q", got)
			}
			if there, err := os.ReadDir(above); err != nil || len(there) > 1 {
				t.Errorf("outside of the cache: %v, %v", there, err)
			}
		})
	}
}

// craftBundle writes the directory of a bundle that has only a config.
func craftBundle(t *testing.T, config string) string {
	t.Helper()
	d, err := layout.Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	add := func(v any, media types.MediaType) v1.Descriptor {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := d.AddBytes(data)
		if err != nil {
			t.Fatal(err)
		}
		h, err := v1.NewHash(digest)
		if err != nil {
			t.Fatal(err)
		}
		return v1.Descriptor{MediaType: media, Digest: h, Size: int64(len(data))}
	}
	manifest := v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: add(json.RawMessage(config), bundle.MediaTypeConfig),
	}
	first := add(manifest, types.OCIManifestSchema1)
	root := add(v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex,
		ArtifactType: bundle.MediaTypeArtifact, Manifests: []v1.Descriptor{first},
	}, types.OCIImageIndex)
	if err := d.SetRoot(root); err != nil {
		t.Fatal(err)
	}
	return string(d)
}

func TestPushPull_KeepsContent(t *testing.T) {
	want := bundletest.BuildBundle(t, "amd64", "arm64")
	for name, referrers := range map[string]bool{"referrers": true, "by tag": false} {
		t.Run(name, func(t *testing.T) {
			reg := bundletest.NewRegistry(t, referrers)
			ref := reg.Host + "/slipway/bundle:v1"
			at, err := bundle.Push(t.Context(), want, ref, reg.At)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(reg.Host+"/slipway/bundle@"+want.Digest(), at); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			sent := reg.Uploads.Load()
			if _, err := bundle.Push(t.Context(), want, ref, reg.At); err != nil {
				t.Fatal(err)
			}
			if again := reg.Uploads.Load() - sent; again != 0 || sent == 0 {
				t.Errorf("%d blobs were sent, and %d of them again", sent, again)
			}
			cache := t.TempDir()
			for _, from := range []string{ref, at, "oci://" + ref} {
				before := reg.Fetches.Load()
				got, err := bundle.Pull(t.Context(), from, cache, reg.At)
				if err != nil {
					t.Fatal(err)
				}
				wantSameBundle(t, want, got, cache)
				// Configs of images are small, and fetched with the manifests.
				if fetched := int(reg.Fetches.Load() - before); from != ref && fetched > len(want.Manifest().Images)+1 {
					t.Errorf("%d blobs were fetched that the cache has", fetched)
				}
			}
			if _, err := bundle.Open(t.Context(), ref, t.TempDir(), reg.At); err != nil {
				t.Errorf("opening it in place: %v", err)
			}
		})
	}
}

func TestPushPull_ReportsRegistryProblems(t *testing.T) {
	b := bundletest.BuildBundle(t, "amd64")
	reg := bundletest.NewRegistry(t, true)
	ref := reg.Host + "/slipway/bundle:v1"
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	encode := func(password string) string {
		data, err := json.Marshal(map[string]any{"auths": map[string]any{reg.Host: map[string]string{
			"username": "carrier",
			"password": password,
		}}})
		if err != nil {
			t.Fatal(err)
		}
		return file(string(data))
	}
	const wrong = "not-the-pass-word"
	for name, tt := range map[string]struct {
		reason     string
		ref        string
		at         bundle.Registry
		push, pull string
	}{
		"no authority": {
			"a certificate of nobody's is not trusted",
			ref,
			bundle.Registry{Credentials: reg.At.Credentials},
			bundle.IDPush, bundle.IDPull,
		},
		"wrong password": {
			"the registry refuses", ref,
			bundle.Registry{CA: reg.At.CA, Credentials: encode(wrong)},
			bundle.IDPush, bundle.IDPull,
		},
		"no credentials": {
			"others than the registry's are not sent", ref,
			bundle.Registry{CA: reg.At.CA, Credentials: file(`{"auths":{"other.example.com":{"auth":"YTpi"}}}`)},
			bundle.IDPush, bundle.IDPull,
		},
		"no such file": {
			"a credentials file that was named must be there", ref,
			bundle.Registry{Credentials: "/nonexistent"},
			bundle.IDCredentials, bundle.IDCredentials,
		},
		"not JSON": {
			"what is in it is not printed", ref,
			bundle.Registry{Credentials: file(`password: ` + wrong)},
			bundle.IDCredentials, bundle.IDCredentials,
		},
		"no certificate": {
			"a file without any would trust less than is meant", ref,
			bundle.Registry{CA: file("hello")},
			bundle.IDRegistryCA, bundle.IDRegistryCA,
		},
		"no tag": {
			"a tag left out is most often forgotten", reg.Host + "/slipway/bundle", reg.At,
			bundle.IDReference, bundle.IDReference,
		},
		"not there":    {"nothing is pulled in its place", reg.Host + "/slipway/none:v1", reg.At, "", bundle.IDPull},
		"no reference": {"a file's name is none", "./b.tar.zst", reg.At, bundle.IDReference, bundle.IDReference},
		"any certificate": {
			"insecure is said by the user", reg.Host + "/slipway/insecure:v1",
			bundle.Registry{Credentials: reg.At.Credentials, Insecure: true},
			"", "",
		},
		"silent": {"it is said who does not answer", "127.0.0.1:1/a/b:v1", reg.At, bundle.IDPush, bundle.IDPull},
	} {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			want := func(what, id string, err error) {
				t.Helper()
				if id == "" {
					if err != nil {
						t.Errorf("%s: %s: %v", tt.reason, what, err)
					}
					return
				}
				if got := diagnosticIDs(t, err); !slices.Equal(got, []string{id}) || strings.Contains(err.Error(), wrong) {
					t.Errorf("%s: %s says %v, want %s", tt.reason, what, err, id)
				}
			}
			_, err := bundle.Pull(t.Context(), tt.ref, cache, tt.at)
			if tt.push != "" || tt.pull != "" {
				want("pull", tt.pull, err)
			}
			_, err = bundle.Push(t.Context(), b, tt.ref, tt.at)
			want("push", tt.push, err)
			if tt.pull == "" {
				_, err = bundle.Pull(t.Context(), tt.ref, cache, tt.at)
				want("pull", tt.pull, err)
			} else if got := cacheEntries(t, cache); len(got) > 0 {
				t.Errorf("left behind: %q", got)
			}
		})
	}
}

func TestPush_RefusesDamagedBundle(t *testing.T) {
	b := bundletest.BuildBundle(t, "amd64")
	c, err := b.Component("etcd", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.Path(), "blobs/sha256", strings.TrimPrefix(c.Digest, "sha256:")),
		make([]byte, c.Size), 0o600); err != nil {
		t.Fatal(err)
	}
	reg := bundletest.NewRegistry(t, true)
	_, err = bundle.Push(t.Context(), b, reg.Host+"/slipway/bundle:v1", reg.At)
	if got := diagnosticIDs(t, err); !slices.Equal(got, []string{bundle.IDCorrupt}) || reg.Uploads.Load() != 0 {
		t.Errorf("got %v, and %d blobs sent", got, reg.Uploads.Load())
	}
	if got := diagnosticIDs(t, bundle.Export(t.Context(), b, filepath.Join(t.TempDir(), "b"))); !slices.Equal(got,
		[]string{bundle.IDCorrupt}) {
		t.Errorf("export: %v", got)
	}
}
