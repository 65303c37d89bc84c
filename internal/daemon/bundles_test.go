package daemon

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundlestore"
	"slipway.dev/slipway/internal/bundle/bundletest"
)

// TestBundle_AddsListsAndRemoves manages the bundles of a server that does not run.
func TestBundle_AddsListsAndRemoves(t *testing.T) {
	cache, elsewhere := t.TempDir(), t.TempDir()
	site := bundletest.NewSite(t, "v1.36.4")
	for _, version := range []string{"v1.36.4", "v1.37.1"} {
		_, err := bundle.Build(t.Context(), bundle.BuildOptions{
			Kubernetes: version, Arches: []string{"amd64"}, Source: bundle.Upstream, Cache: elsewhere, Upstream: site.Options(),
			Releases: bundletest.LoadCatalogue(t), Out: filepath.Join(elsewhere, version+".tar.zst"),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	use := func(args ...string) result {
		t.Helper()
		return runCommand(t, append([]string{"bundle", "--cache-dir", cache}, args...)...)
	}
	list := func() (versions []string) {
		t.Helper()
		var out []bundleEntry
		if err := json.Unmarshal([]byte(use("list", "-o", "json").out), &out); err != nil {
			t.Fatal(err)
		}
		for _, e := range out {
			versions = append(versions, e.Kubernetes)
		}
		return versions
	}
	requireCode := func(r result, code int, text string) {
		t.Helper()
		if r.code != code || !strings.Contains(r.out+r.err, text) {
			t.Errorf("got %+v, want code %d with %q", r, code, text)
		}
	}
	requireCode(use("list"), exitDone, "No bundles in "+cache)
	requireCode(use("add", filepath.Join(elsewhere, "absent.tar.zst")), exitRefused, "bundle-not-found")
	requireCode(use("add", filepath.Join(elsewhere, "v1.36.4.tar.zst"), "--key", "ed25519:x"), exitRefused, "bundle-key-invalid")
	requireCode(use("add", filepath.Join(elsewhere, "v1.36.4.tar.zst")), exitDone, "added Kubernetes v1.36.4 for amd64")
	path, ok := bundle.FindCached(cache, "v1.36.4", nil)
	if !ok {
		t.Fatal("the bundle is not found by its version")
	}
	if err := os.Chtimes(path, time.Now(), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	requireCode(use("add", filepath.Join(elsewhere, "v1.37.1.tar.zst"), "--max-size", "100"), exitDone, "added Kubernetes v1.37.1")
	if d := cmp.Diff([]string{"v1.37.1", "v1.36.4"}, list()); d != "" {
		t.Errorf("bundles (-want +got):\n%s", d)
	}
	requireCode(use("list"), exitDone, "v1.36.4     amd64")
	requireCode(use("remove"), exitRefused, "give the name of a bundle")
	requireCode(use("remove", "v1.35.6"), exitRefused, "bundle-not-found")

	used, err := bundle.Open(t.Context(), path, cache, bundle.Registry{})
	if err != nil {
		t.Fatal(err)
	}
	release, err := bundlestore.Use(t.Context(), used, cache, time.Now()) // as an operation of the server does
	if err != nil {
		t.Fatal(err)
	}
	requireCode(use("remove", "v1.36.4"), exitRefused, "bundle-in-use")
	if err := release(); err != nil {
		t.Fatal(err)
	}
	requireCode(use("remove", "v1.36.4"), exitDone, "removed "+filepath.Base(path))
	if d := cmp.Diff([]string{"v1.37.1"}, list()); d != "" {
		t.Errorf("bundles after a removal (-want +got):\n%s", d)
	}
}

// TestCacheLimit_RemovesOldBundles keeps the bundle that is in use.
func TestCacheLimit_RemovesOldBundles(t *testing.T) {
	cache := t.TempDir()
	site := bundletest.NewSite(t, "v1.36.4")
	var paths []string
	for _, version := range []string{"v1.36.4", "v1.37.1"} {
		b, err := bundle.Build(t.Context(), bundle.BuildOptions{
			Kubernetes: version, Arches: []string{"amd64"}, Source: bundle.Upstream, Cache: cache, Upstream: site.Options(),
			Releases: bundletest.LoadCatalogue(t),
		})
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, b.Path())
	}
	used, err := bundle.Open(t.Context(), paths[0], cache, bundle.Registry{})
	if err != nil {
		t.Fatal(err)
	}
	release, err := bundlestore.Use(t.Context(), used, cache, time.Now().Add(-time.Hour)) // the oldest one
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = release() }()
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { cacheLimit{cache, 1, slog.New(slog.DiscardHandler)}.keep(ctx) })
	limit := time.Now().Add(time.Minute)
	for _, err := os.Stat(paths[1]); err == nil && time.Now().Before(limit); _, err = os.Stat(paths[1]) {
		<-time.After(10 * time.Millisecond)
	}
	stop()
	work.Wait()
	left, err := bundlestore.List(t.Context(), cache)
	if err != nil || len(left) != 1 || left[0].Path != paths[0] {
		t.Errorf("bundles %+v, %v; want only the bundle that is in use", left, err)
	}
}
