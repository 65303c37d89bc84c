package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
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
