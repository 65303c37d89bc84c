package bundle_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/release"
)

// For a version that is not in the catalogue, the bundle gives its component versions.
// Components without a recorded version are as in the newest minor.
func TestExtendCatalogue_ReadsVersionsFromBundle(t *testing.T) {
	b := bundletest.BuildBundle(t, "amd64")
	cache := filepath.Dir(filepath.Dir(b.Path()))
	want, err := bundletest.LoadCatalogue(t).ResolveVersion(b.Manifest().Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	old, err := release.Parse([]byte(`components: {runc: 9.9.9, flannelCNI: 9.9.8}
minors: {"1.36": {versions: [v1.36.4], components: {etcd: 9.9.7}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		cache string
		named []string
	}{
		"in the cache": {cache, nil},
		"named":        {t.TempDir(), []string{b.Path()}},
	} {
		t.Run(name, func(t *testing.T) {
			known, err := bundle.ExtendCatalogue(t.Context(), old, tt.cache, bundle.Registry{}, tt.named...)
			if err != nil {
				t.Fatal(err)
			}
			got, err := known.ResolveVersion(want.Kubernetes)
			has := want.Components
			has.Runc, has.FlannelCNI = "9.9.9", "9.9.8"
			if d := cmp.Diff(has, got.Components); d != "" || !got.Beyond || err != nil {
				t.Errorf("components (-want +got):\n%s%v", d, err)
			}
		})
	}
	if _, err := bundle.ExtendCatalogue(t.Context(), old, t.TempDir(), bundle.Registry{}, filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a named bundle that is missing was ignored")
	}
	if err := os.Remove(filepath.Join(b.Path(), "index.json")); err != nil {
		t.Fatal(err)
	}
	if known, err := bundle.ExtendCatalogue(t.Context(), old, cache, bundle.Registry{}); err != nil || known != old {
		t.Errorf("with an unreadable bundle in the cache: %v", err)
	}
}
