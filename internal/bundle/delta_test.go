package bundle_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
)

// twoVersions are bundles of two versions, which share some content.
func twoVersions(t *testing.T) (old, next *bundle.Bundle) {
	t.Helper()
	site := bundletest.NewSite(t, "v1.36.4")
	build := func(version string) *bundle.Bundle {
		o := siteOptions(t, site)
		o.Kubernetes = version
		b, err := bundle.Build(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return build("v1.36.4"), build("v1.37.1")
}

func TestWriteDelta_HasOnlyNewContent(t *testing.T) {
	old, next := twoVersions(t)
	private, public := newTestKeys(t)
	if _, err := bundle.Sign(t.Context(), next.Path(), t.TempDir(), private, bundle.Registry{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	next, err := bundle.Open(t.Context(), next.Path(), t.TempDir(), bundle.Registry{})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "delta.tar.zst")
	d, err := bundle.WriteDelta(t.Context(), old, next, out)
	if err != nil {
		t.Fatal(err)
	}
	if d.Blobs == 0 || d.SizeBytes >= next.Size() {
		t.Errorf("%d blobs, %d of %d bytes: nothing was spared", d.Blobs, d.SizeBytes, next.Size())
	}

	cache := t.TempDir()
	_, err = bundle.Import(t.Context(), out, cache)
	if got := diagnosticIDs(t, err); !slices.Equal(got, []string{bundle.IDBase}) || !strings.Contains(err.Error(), old.Digest()) ||
		len(cacheEntries(t, cache)) > 0 {
		t.Errorf("importing a delta without its base: %v", err)
	}
	_, err = bundle.Open(t.Context(), out, cache, bundle.Registry{})
	if got := diagnosticIDs(t, err); !slices.Equal(got, []string{bundle.IDBase}) {
		t.Errorf("opening a delta as a full bundle: %v", err)
	}
	if _, err := bundle.Import(t.Context(), old.Path(), cache); err != nil {
		t.Fatal(err)
	}
	got, err := bundle.Import(t.Context(), out, cache, public)
	if err != nil {
		t.Fatal(err)
	}
	wantSameBundle(t, next, got, cache)
	again := filepath.Join(t.TempDir(), "whole.tar.zst")
	if err := bundle.Export(t.Context(), got, again); err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.Import(t.Context(), again, t.TempDir(), public); err != nil {
		t.Errorf("the bundle from a delta is not complete: %v", err)
	}
}

// TestImport_RefusesDeltaOnDamagedBlob: a blob in the cache that has changed is not used
// for the new bundle.
func TestImport_RefusesDeltaOnDamagedBlob(t *testing.T) {
	old, next := twoVersions(t)
	out := filepath.Join(t.TempDir(), "delta.tar.zst")
	if _, err := bundle.WriteDelta(t.Context(), old, next, out); err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	have, err := bundle.Import(t.Context(), old.Path(), cache)
	if err != nil {
		t.Fatal(err)
	}
	c, err := next.Component("cni-plugins", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(have.Path(), "blobs/sha256", strings.TrimPrefix(c.Digest, "sha256:"))
	if err := os.WriteFile(path, make([]byte, c.Size), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = bundle.Import(t.Context(), out, cache)
	if got := diagnosticIDs(t, err); !slices.Equal(got, []string{bundle.IDBase}) {
		t.Errorf("got %v (%v)", got, err)
	}
	if _, ok := bundle.FindCached(cache, "v1.37.1", nil); ok {
		t.Error("a part of the bundle was imported")
	}
}

func TestWriteDelta_RefusesDirectoryAsOutput(t *testing.T) {
	b := bundletest.BuildBundle(t, "amd64")
	for _, out := range []string{t.TempDir(), t.TempDir() + "/"} {
		_, err := bundle.WriteDelta(t.Context(), b, b, out)
		if got := diagnosticIDs(t, err); !slices.Equal(got, []string{bundle.IDOut}) {
			t.Errorf("%s: %v", out, got)
		}
	}
}
