package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

// TestBundle_AcceptsPathsAndReferences tells paths and references from what is neither: a path without "./" at its
// beginning is taken for a reference.
func TestBundle_AcceptsPathsAndReferences(t *testing.T) {
	const neither = " is neither a path nor a reference to a registry"
	for bundle, want := range map[string]string{
		"":                                     "",
		"./bundles/b.tar":                      "",
		"/srv/b.tar.zst":                       "",
		"~/bundle":                             "",
		"registry.example.com/slipway:v1.37.1": "",
		"localhost:5000/slipway@sha256:0123":   "",
		"localhost/slipway:v1.37.1":            "",
		"oci://registry/slipway:v1.37.1":       "",
		"bundles/b.tar":                        `"bundles/b.tar"` + neither + "; write ./bundles/b.tar",
		"b.tar.zst":                            `"b.tar.zst"` + neither + "; write ./b.tar.zst",
		"oci://b":                              `"oci://b"` + neither + "; write ./b",
		"me:secret@registry.example.com":       `"…@registry.example.com"` + neither + "; write ./FILE",
		"bundles.d/b.tar": `"bundles.d/b.tar" is a reference to a registry, without a tag or a digest; write ` +
			`./bundles.d/b.tar`,
		"registry.example.com:5000/slipway": `"registry.example.com:5000/slipway" is a reference to a registry, without a tag or a ` +
			`digest; write ./registry.example.com:5000/slipway`,
	} {
		c := &v1alpha1.Cluster{}
		c.Spec.Bundle = bundle
		v := &validator{c: c}
		v.checkBundle()
		got := ""
		for _, d := range v.found {
			got += d.Message + "; " + d.Hint
		}
		if want != "" && len(got) > len(want) {
			got = got[:len(want)]
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", bundle, d)
		}
	}
}
