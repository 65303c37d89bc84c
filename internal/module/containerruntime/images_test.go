package containerruntime

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/node/op"
)

// TestImageNames_AreUniqueAndSupported checks the names of images in a manifest, each
// for one image, and for Docker only the names that it supports.
func TestImageNames_AreUniqueAndSupported(t *testing.T) {
	for _, tc := range []struct {
		name, reason       string
		refs               []string
		containerd, docker []string
	}{
		{"a tag", "there is no other name", []string{"r:5000/app:1"}, []string{"r:5000/app:1"}, []string{"r:5000/app:1"}},
		{
			"a tag and a digest", "Docker refuses a digest as a tag",
			[]string{"r/app:1@sha256:a"},
			[]string{"r/app:1", "r/app@sha256:a"},
			[]string{"r/app:1"},
		},
		{"a digest", "Docker has no name for it", []string{"r:5000/app@sha256:a"}, []string{"r:5000/app@sha256:a"}, nil},
		{
			"two digests of a tag", "each import would take it from the other",
			[]string{"r/app:1@sha256:a", "r/app:1@sha256:b"},
			[]string{"r/app:1", "r/app@sha256:a", "r/app@sha256:b"},
			[]string{"r/app:1"},
		},
		{
			"a tag, and a digest of it", "a pod without a digest uses the tag",
			[]string{"r/app:1@sha256:a", "r/app:1"},
			[]string{"r/app@sha256:a", "r/app:1"},
			[]string{"r/app:1"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var images []bundle.Image
			for _, ref := range tc.refs {
				images = append(images, bundle.Image{Image: op.Image{Ref: ref}})
			}
			tags := bundle.TagNames(images)
			for docker, want := range map[bool][]string{false: tc.containerd, true: tc.docker} {
				var got []string
				for _, ref := range tc.refs {
					got = append(got, imageNames(ref, tags[ref], docker)...)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%s; Docker %t (-want +got):\n%s", tc.reason, docker, d)
				}
			}
		})
	}
}
