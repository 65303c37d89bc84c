package bundle_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/bundle/source"
)

// zeroBlobs overwrites every blob of at least the given size below a directory with
// zeros, as a power loss can. The sizes do not change.
func zeroBlobs(t *testing.T, dir string) {
	t.Helper()
	blobs, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	if err != nil || len(blobs) == 0 {
		t.Fatalf("no blobs in %s: %v", dir, err)
	}
	for _, b := range blobs {
		info, err := os.Stat(b)
		if err != nil {
			t.Fatal(err)
		}
		// A new file: others may be links to the same.
		if err := errors.Join(os.Remove(b), os.WriteFile(b, make([]byte, info.Size()), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBuild_ReplacesDamagedCacheContent: fetching or building a bundle always gives a
// complete one, and repairs the cache.
func TestBuild_ReplacesDamagedCacheContent(t *testing.T) {
	s := bundletest.NewSite(t)
	reg := bundletest.NewRegistry(t, true)
	first := siteOptions(t, s)
	first.Out = filepath.Join(t.TempDir(), "b.tar.zst")
	want, err := bundle.Build(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	ref := reg.Host + "/slipway/bundle:v1"
	if _, err := bundle.Push(t.Context(), want, ref, reg.At); err != nil {
		t.Fatal(err)
	}
	building := func(from string) func(*testing.T, string) (*bundle.Bundle, error) {
		return func(t *testing.T, cache string) (*bundle.Bundle, error) {
			o := siteOptions(t, s)
			o.Cache, o.Source = cache, from
			return bundle.Build(t.Context(), o)
		}
	}
	for name, get := range map[string]func(*testing.T, string) (*bundle.Bundle, error){
		"build from anywhere": building(bundle.Auto),
		"build from upstream": building(bundle.Upstream),
		"pull": func(t *testing.T, cache string) (*bundle.Bundle, error) {
			return bundle.Pull(t.Context(), ref, cache, reg.At)
		},
		"import": func(t *testing.T, cache string) (*bundle.Bundle, error) {
			return bundle.Import(t.Context(), first.Out, cache)
		},
		"open a file": func(t *testing.T, cache string) (*bundle.Bundle, error) {
			return bundle.Open(t.Context(), first.Out, cache, bundle.Registry{})
		},
		"open a reference": func(t *testing.T, cache string) (*bundle.Bundle, error) {
			return bundle.Open(t.Context(), ref, cache, reg.At)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			if _, err := get(t, cache); err != nil {
				t.Fatal(err)
			}
			var damaged []string
			for _, below := range []string{"bundles/sha256-*", "unpacked/*", "downloads/images"} {
				found, err := filepath.Glob(filepath.Join(cache, below))
				if err != nil {
					t.Fatal(err)
				}
				damaged = append(damaged, found...)
			}
			for _, dir := range damaged {
				zeroBlobs(t, dir)
			}
			got, err := get(t, cache)
			if err != nil {
				t.Fatal(err)
			}
			if err := got.Verify(t.Context()); err != nil || got.Digest() != want.Digest() {
				t.Errorf("%s, want %s: %v", got.Digest(), want.Digest(), err)
			}
			if !slices.Contains(damaged, got.Path()) {
				t.Errorf("the file is in %s, not in one of %v", got.Path(), damaged)
			}
		})
	}
}

// TestBuild_DoesNotUseDamagedBundleOffline: a damaged bundle in the cache does not
// replace a source that does not respond.
func TestBuild_DoesNotUseDamagedBundleOffline(t *testing.T) {
	s := bundletest.NewSite(t)
	o := siteOptions(t, s)
	b, err := bundle.Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.Component("crictl", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	blob := filepath.Join(b.Path(), "blobs", "sha256", strings.TrimPrefix(c.Digest, "sha256:"))
	if err := errors.Join(os.Remove(blob), os.WriteFile(blob, make([]byte, c.Size), 0o644),
		os.RemoveAll(filepath.Join(o.Cache, "downloads"))); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := bundle.Build(t.Context(), o); !errors.Is(err, source.ErrSilent) {
		t.Error(err)
	}
}
