package bundle_test

import (
	"slices"
	"testing"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
)

func TestMerge_EqualsJointBuild(t *testing.T) {
	site := bundletest.NewSite(t, "v1.36.4")
	build := func(version string, arches ...string) *bundle.Bundle {
		o := siteOptions(t, site)
		o.Kubernetes, o.Arches = version, arches
		b, err := bundle.Build(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	one, two, both := build("", "amd64"), build("", "arm64"), build("", "amd64", "arm64")
	for _, parts := range [][]*bundle.Bundle{{one, two}, {two, one}} {
		cache := t.TempDir()
		got, err := bundle.Merge(t.Context(), cache, parts...)
		if err != nil {
			t.Fatal(err)
		}
		wantSameBundle(t, both, got, cache)
	}
	for name, parts := range map[string][]*bundle.Bundle{
		"the same architecture": {one, one}, "one that has both": {both, two}, "another version": {one, build("v1.36.4", "arm64")},
	} {
		cache := t.TempDir()
		_, err := bundle.Merge(t.Context(), cache, parts...)
		if got := diagnosticIDs(t, err); !slices.Equal(got, []string{bundle.IDMerge}) || len(cacheEntries(t, cache)) > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
