package mirror_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/bundle/mirror"
)

func TestListReferences_FollowsMirrors(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, tc := range []struct {
		name, ref string
		mirrors   map[string][]string
		plain     []string
		want      []string
	}{
		{"none", "registry.example.com/slipway/bundle:v1", nil, nil, nil},
		{"of another registry", "registry.example.com/slipway/bundle:v1", map[string][]string{"quay.io": {"https://m"}}, nil, nil},
		{
			"in order", "registry.example.com/slipway/bundle:v1",
			map[string][]string{"registry.example.com": {"https://m1.example.com", "https://m2.example.com:5000/"}},
			nil,
			[]string{"m1.example.com/slipway/bundle:v1", "m2.example.com:5000/slipway/bundle:v1"},
		},
		{
			"in a namespace", "registry.example.com/bundle@" + digest,
			map[string][]string{"registry.example.com": {
				"https://m.example.com/v2/team/x/", "https://m.example.com/x", "https://m.example.com/v2hub",
			}},
			nil,
			[]string{"m.example.com/team/x/bundle@" + digest},
		},
		{
			"of Docker Hub", "docker.io/slipway/bundle:v1",
			map[string][]string{"docker.io": {"https://m.example.com"}},
			nil,
			[]string{"m.example.com/slipway/bundle:v1"},
		},
		{
			"without TLS", "registry.example.com/b:v1",
			map[string][]string{"registry.example.com": {"http://a:80", "http://b:80"}},
			[]string{"b:80"},
			[]string{"b:80/b:v1"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ref, err := name.ParseReference(tc.ref)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, mirror.ListReferences(ref, tc.mirrors, tc.plain)); d != "" {
				t.Errorf("references (-want +got):\n%s", d)
			}
		})
	}
}

// TestOpen_UsesMirrors opens a bundle whose registry does not exist.
func TestOpen_UsesMirrors(t *testing.T) {
	want := bundletest.BuildBundle(t, "amd64")
	reg := bundletest.NewRegistry(t, true)
	if _, err := bundle.Push(t.Context(), want, reg.Host+"/team/slipway/bundle:v1", reg.At); err != nil {
		t.Fatal(err)
	}
	const named = "127.0.0.1:1/slipway/bundle:v1" // nothing listens there
	at := reg.At
	at.Mirrors = map[string][]string{"127.0.0.1:1": {"https://" + reg.Host, "https://" + reg.Host + "/v2/team"}}
	got, err := bundle.Open(t.Context(), named, t.TempDir(), at)
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest() != want.Digest() {
		t.Errorf("bundle %s, want %s", got.Digest(), want.Digest())
	}
	at.Mirrors["127.0.0.1:1"] = at.Mirrors["127.0.0.1:1"][:1]
	_, err = bundle.Open(t.Context(), named, t.TempDir(), at)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1/") || !strings.Contains(err.Error(), "from a mirror: ") {
		t.Errorf("without a mirror that has the bundle: error %v, want both places", err)
	}
}
