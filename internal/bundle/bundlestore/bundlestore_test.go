package bundlestore_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundlestore"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/diag"
)

// noon is the time of the tests.
var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// newCache returns a cache with bundles of two versions.
func newCache(t *testing.T) (cache string, older, newer *bundle.Bundle) {
	t.Helper()
	cache = t.TempDir()
	site := bundletest.NewSite(t, "v1.36.4")
	build := func(version string) *bundle.Bundle {
		b, err := bundle.Build(t.Context(), bundle.BuildOptions{
			Kubernetes: version, Arches: []string{"amd64"}, Source: bundle.Upstream, Cache: cache, Upstream: site.Options(),
			Releases: bundletest.LoadCatalogue(t),
		})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	older, newer = build("v1.36.4"), build("v1.37.1")
	for b, used := range map[*bundle.Bundle]time.Time{older: noon.Add(-2 * time.Hour), newer: noon.Add(-time.Hour)} {
		if err := os.Chtimes(b.Path(), used, used); err != nil {
			t.Fatal(err)
		}
	}
	return cache, older, newer
}

// state describes the bundles of a cache.
func state(ctx context.Context, t *testing.T, cache string) (out []string) {
	t.Helper()
	list, err := bundlestore.List(ctx, cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		text := filepath.Base(e.Path)
		if e.Bundle != nil {
			text = e.Bundle.Manifest().Kubernetes
		}
		if e.InUse {
			text += " in use"
		}
		if e.Problem != nil {
			text += " damaged"
		}
		out = append(out, text)
	}
	return out
}

func requireState(t *testing.T, cache string, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, state(t.Context(), t, cache)); d != "" {
		t.Errorf("bundles (-want +got):\n%s", d)
	}
}

func requireRefusal(t *testing.T, err error, id string) {
	t.Helper()
	var list diag.List
	if !errors.As(err, &list) || list[0].ID != id {
		t.Errorf("got %v, want %s", err, id)
	}
}

func TestRemove_KeepsBundlesInUse(t *testing.T) {
	t.Parallel()
	cache, older, _ := newCache(t)
	requireState(t, cache, "v1.37.1", "v1.36.4")
	release, err := bundlestore.Use(t.Context(), older, cache, noon)
	if err != nil {
		t.Fatal(err)
	}
	second, err := bundlestore.Use(t.Context(), older, cache, noon) // by another operation
	if err != nil {
		t.Fatal(err)
	}
	requireState(t, cache, "v1.36.4 in use", "v1.37.1")
	_, err = bundlestore.Remove(t.Context(), cache, "v1.36.4")
	requireRefusal(t, err, "bundle-in-use")
	if err := release(); err != nil {
		t.Fatal(err)
	}
	_, err = bundlestore.Remove(t.Context(), cache, older.Digest())
	requireRefusal(t, err, "bundle-in-use")
	if err := second(); err != nil {
		t.Fatal(err)
	}
	if _, err = bundlestore.Remove(t.Context(), cache, "v1.36.4_amd64"); err != nil {
		t.Fatal(err)
	}
	requireState(t, cache, "v1.37.1")
	if _, ok := bundle.FindCached(cache, "v1.36.4", nil); ok {
		t.Error("a removed bundle is found by its version")
	}
	if _, err := bundlestore.Use(t.Context(), older, cache, noon); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("using a removed bundle: %v", err)
	}
	_, err = bundlestore.Remove(t.Context(), cache, "v1.36.4")
	requireRefusal(t, err, bundle.IDNotFound)
	entries, err := os.ReadDir(filepath.Join(cache, "bundles"))
	if err != nil || len(entries) != 2 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}

func TestShrink_RemovesTheLastUsedFirst(t *testing.T) {
	t.Parallel()
	cache, older, newer := newCache(t)
	for _, tc := range []struct {
		limit int64
		use   *bundle.Bundle
		want  []string
	}{
		{limit: older.Size() + newer.Size(), want: []string{"v1.37.1", "v1.36.4"}},
		{limit: newer.Size(), use: older, want: []string{"v1.36.4"}}, // the other one is older now
		{limit: 0, want: nil},
	} {
		release := func() error { return nil }
		if tc.use != nil {
			var err error
			if release, err = bundlestore.Use(t.Context(), tc.use, cache, noon); err != nil {
				t.Fatal(err)
			}
		}
		_, err := bundlestore.Shrink(t.Context(), cache, tc.limit, noon)
		if err := errors.Join(err, release()); err != nil {
			t.Fatal(err)
		}
		requireState(t, cache, tc.want...)
	}
}

func TestShrink_RemovesLeftovers(t *testing.T) {
	t.Parallel()
	cache, _, _ := newCache(t)
	bundles := filepath.Join(cache, "bundles")
	for name, changed := range map[string]time.Time{".import-old": noon.Add(-25 * time.Hour), ".import-new": noon, ".removed-a": noon} {
		dir := filepath.Join(bundles, name)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chtimes(dir, changed, changed)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := bundlestore.Shrink(t.Context(), cache, 1<<40, noon); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{".import-old": false, ".import-new": true, ".removed-a": false} {
		if _, err := os.Stat(filepath.Join(bundles, name)); (err == nil) != want {
			t.Errorf("%s exists: %t, want %t", name, err == nil, want)
		}
	}
	requireState(t, cache, "v1.37.1", "v1.36.4")
}

func TestList_ShowsDamagedBundles(t *testing.T) {
	t.Parallel()
	cache, older, _ := newCache(t)
	if err := os.Remove(filepath.Join(older.Path(), "index.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(older.Path(), noon, noon); err != nil {
		t.Fatal(err)
	}
	requireState(t, cache, filepath.Base(older.Path())+" damaged", "v1.37.1")
	if _, err := bundlestore.Remove(t.Context(), cache, filepath.Base(older.Path())); err != nil {
		t.Fatal(err)
	}
	requireState(t, cache, "v1.37.1")
	requireState(t, t.TempDir())
}

func TestUse_IgnoresBundlesElsewhere(t *testing.T) {
	t.Parallel()
	cache, older, _ := newCache(t)
	release, err := bundlestore.Use(t.Context(), older, t.TempDir(), noon)
	if err != nil {
		t.Fatal(err)
	}
	requireState(t, cache, "v1.37.1", "v1.36.4")
	if err := release(); err != nil {
		t.Fatal(err)
	}
}
