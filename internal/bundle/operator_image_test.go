package bundle_test

import (
	"debug/elf"
	"errors"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/bundle/operatorimage"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/version"
)

// TestBuild_AddsOperatorForEachArchitecture: nodes get the image with the other images of a bundle.
func TestBuild_AddsOperatorForEachArchitecture(t *testing.T) {
	o := bundle.BuildOptions{
		Arches: []string{"amd64", "arm64"}, Cache: t.TempDir(), Releases: bundletest.LoadCatalogue(t), Source: bundle.Upstream,
		Upstream: bundletest.NewSite(t).Options(),
	}
	without, err := bundle.Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.Operators = []string{bundletest.WriteProgram(t, elf.EM_AARCH64), bundletest.WriteProgram(t, elf.EM_X86_64)}
	b, err := bundle.Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var arches []string
	for _, i := range b.Images() {
		if i.Name == "slipwayd" && i.Ref == operatorimage.RefOf(version.Get().Version) && i.Extra {
			arches = append(arches, i.Arch)
		}
	}
	if !slices.Equal(arches, o.Arches) || b.Digest() == without.Digest() {
		t.Errorf("the bundle has the image for %q, want %q", arches, o.Arches)
	}
	if err := errors.Join(b.Verify(t.Context()), b.CheckTags()); err != nil {
		t.Error(err)
	}
	if path, ok := bundle.FindCached(o.Cache, "v1.37.1", o.Arches); !ok || path != b.Path() {
		t.Errorf("a new cluster uses %s, want %s", path, b.Path())
	}
}

func TestBuild_RefusesOperatorForOtherArchitecture(t *testing.T) {
	_, err := bundle.Build(t.Context(), bundle.BuildOptions{
		Arches: []string{"amd64", "arm64"}, Cache: t.TempDir(), Releases: bundletest.LoadCatalogue(t), Source: bundle.Upstream,
		Upstream: bundletest.NewSite(t).Options(), Operators: []string{bundletest.WriteProgram(t, elf.EM_X86_64)},
	})
	var list diag.List
	if !errors.As(err, &list) || !strings.Contains(list[0].Message, "names no program for arm64") {
		t.Errorf("got %v", err)
	}
}
