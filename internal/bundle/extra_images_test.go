package bundle_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/release"
)

// newLoginSite is a registry with a login; at is its address.
func newLoginSite(t *testing.T) (at string, srv *httptest.Server) {
	t.Helper()
	keeps := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != "puller" || p != "word" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		keeps.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://"), srv
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// pushTestImage pushes an image for these architectures, and returns its digest.
func pushTestImage(t *testing.T, ref string, arches ...string) string {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	index := v1.ImageIndex(empty.Index)
	for _, arch := range arches {
		img, err := random.Image(256, 2)
		if err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index,
			mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	if err := remote.WriteIndex(tag, index, remote.WithAuth(&authn.Basic{Username: "puller", Password: "word"})); err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// loginFile is the file of credentials for a registry.
func loginFile(t *testing.T, at string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "login.json")
	if err := os.WriteFile(file, []byte(`{"auths":{"`+at+`":{"username":"puller","password":"word"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestBuild_AddsExtraImagesForEachArchitecture: the images have the digests of their
// registry, and the second build needs no registry.
func TestBuild_AddsExtraImagesForEachArchitecture(t *testing.T) {
	at, srv := newLoginSite(t)
	app, tool := at+"/team/app:v1", at+"/team/tool:v2"
	digest := pushTestImage(t, app, "amd64", "arm64", "s390x")
	pinned := at + "/team/tool:v2@" + pushTestImage(t, tool, "amd64", "arm64")
	o := bundle.BuildOptions{
		Arches: []string{"amd64", "arm64"}, Source: bundle.Upstream, Cache: t.TempDir(), Releases: bundletest.LoadCatalogue(t),
		Upstream: bundletest.NewSite(t).Options(), Images: []string{app, pinned},
		Registry: bundle.Registry{Credentials: loginFile(t, at), Insecure: true},
	}
	b, err := bundle.Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, i := range b.Images() {
		if !i.Extra {
			continue
		}
		have = append(have, i.Ref+" "+i.Arch)
		if i.Ref == app && digestOf(i.Index) != digest {
			t.Errorf("%s for %s is not what its registry has: %s", i.Ref, i.Arch, i.Index)
		}
	}
	slices.Sort(have)
	want := []string{app + " amd64", app + " arm64", pinned + " amd64", pinned + " arm64"}
	if !slices.Equal(have, want) {
		t.Errorf("got %q, want %q", have, want)
	}
	if err := b.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	srv.Close()
	again, err := bundle.Build(t.Context(), o)
	if err != nil || again.Digest() != b.Digest() {
		t.Errorf("without the registry: %v", err)
	}
	o.Source = bundle.Auto
	if again, err = bundle.Build(t.Context(), o); err != nil || again.Digest() != b.Digest() {
		t.Errorf("from the cache: %v", err)
	}
	o.Images = append(o.Images, at+"/team/third:v1", at+"/team/fourth:v1")
	_, err = bundle.Build(t.Context(), o)
	var list diag.List
	if !errors.As(err, &list) || len(list) != 2 || list[0].ID != bundle.IDExtra || list[1].ID != bundle.IDExtra {
		t.Errorf("for two missing images: %v", err)
	}
}

// TestBuild_NamesExtraImagesThatCannotBePulled: the error names each image that cannot be
// pulled, and nothing is kept.
func TestBuild_NamesExtraImagesThatCannotBePulled(t *testing.T) {
	at, _ := newLoginSite(t)
	only := at + "/team/app:v1"
	pushTestImage(t, only, "arm64")
	for _, tc := range []struct {
		name, ref, want string
		registry        bundle.Registry
	}{
		{"another architecture", only, "is not available for amd64", bundle.Registry{Credentials: loginFile(t, at), Insecure: true}},
		{"no login", only, "cannot be pulled", bundle.Registry{Insecure: true}},
		{"not there", at + "/team/none:v1", "cannot be pulled", bundle.Registry{Credentials: loginFile(t, at), Insecure: true}},
		{
			"another digest", at + "/team/app@sha256:" + strings.Repeat("0", 64), "cannot be pulled",
			bundle.Registry{Credentials: loginFile(t, at), Insecure: true},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cache := t.TempDir()
			_, err := bundle.Build(t.Context(), bundle.BuildOptions{
				Arches: []string{"amd64"}, Source: bundle.Upstream, Cache: cache, Releases: bundletest.LoadCatalogue(t),
				Upstream: bundletest.NewSite(t).Options(), Images: []string{tc.ref}, Registry: tc.registry,
			})
			var list diag.List
			if !errors.As(err, &list) || list[0].ID != bundle.IDExtra || !strings.Contains(list[0].Message, tc.want) ||
				strings.Contains(list[0].Message, "word") {
				t.Errorf("got error %v", err)
			}
			if _, ok := bundle.FindCached(cache, "v1.37.1", nil); ok {
				t.Error("a bundle without the image was built")
			}
		})
	}
}

// TestManifestRequest_ReportsEveryProblem: the output of create manifest can be read, and
// all problems of a file are reported together.
func TestManifestRequest_ReportsEveryProblem(t *testing.T) {
	r, err := bundletest.LoadCatalogue(t).ResolveVersion("")
	if err != nil {
		t.Fatal(err)
	}
	w := bundle.NewWanted(r, []string{"amd64"})
	text, err := w.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := bundle.ParseWanted("m.yaml", text); err != nil || got.Components != r.Components || got.Kubernetes != r.Kubernetes {
		t.Errorf("parsed as %+v: %v", got, err)
	}
	const head = "apiVersion: slipway.dev/v1alpha1\nkind: BundleManifest\n"
	_, err = bundle.ParseWanted("m.yaml", []byte(head+"kubernetes: v1.37.1\nfoo: 1\n"))
	if want := "m.yaml:4:1: field foo not found [bundle-manifest-invalid]"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	sum := strings.Repeat("a", 64)
	for _, tc := range []struct {
		name, text string
		problems   int
	}{
		{"nothing", "", 1},
		{"a cluster", "apiVersion: slipway.dev/v1alpha1\nkind: Cluster\n", 1},
		{"a field that there is not", head + "kubernets: v1.37.1\n", 1},
		{"a component that there is not", head + "kubernetes: v1.37.1\ncomponents: {harbor: 2.0}\n", 1},
		{"fields that there are not, and an image", head + "kubernetes: v1.37.1\nfoo: 1\nbar: 2\nimages: [nginx]\n", 3},
		{"no version, no runtime", head + "runtime: crio\n", 2},
		{
			"images",
			head + "kubernetes: v1.37.1\nimages: [nginx, docker.io/nginx:1, docker.io/library/nginx, quay.io/a:1, quay.io/a:1, 'quay.io/A:1']\n", 5,
		},
		{
			"images with digests and without a registry",
			head + "kubernetes: v1.37.1\nimages: ['nginx:1.29@sha256:" + sum + "', 'nginx@sha256:" + sum + "', 'nginx:1@sha256:a/b']\n", 3,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := bundle.ParseWanted("m.yaml", []byte(tc.text))
			var list diag.List
			if !errors.As(err, &list) || len(list) != tc.problems {
				t.Fatalf("got %v, want %d problems", err, tc.problems)
			}
			for _, d := range list {
				if d.ID != bundle.IDWanted || d.Hint == "" {
					t.Errorf("%+v", d)
				}
			}
		})
	}
}

// TestManifestRequest_ReplacesProgramVersions: a file can replace the version of a
// program, but not the versions in image names.
func TestManifestRequest_ReplacesProgramVersions(t *testing.T) {
	o := bundle.BuildOptions{
		Arches: []string{"amd64"}, Source: bundle.Upstream, Cache: t.TempDir(),
		Releases: bundletest.LoadCatalogue(t), Upstream: bundletest.NewSite(t).Options(),
	}
	o.Components = release.Components{CoreDNS: "9.9.9"}
	_, err := bundle.Build(t.Context(), o)
	var list diag.List
	if !errors.As(err, &list) || list[0].ID != bundle.IDWanted || !strings.Contains(list[0].Message, "coredns 9.9.9") {
		t.Errorf("for another image: %v", err)
	}
	o.Components = release.Components{Containerd: "9.9.9"}
	if _, err = bundle.Build(t.Context(), o); err == nil {
		t.Error("a version that is not published was built")
	}
	if _, err = bundle.ReadWanted(filepath.Join(t.TempDir(), "none.yaml")); !errors.As(err, &list) || list[0].ID != bundle.IDWanted {
		t.Errorf("for a missing file: %v", err)
	}
}
