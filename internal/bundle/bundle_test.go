package bundle_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/bundle/source/upstream"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/release"
)

// diagnosticIDs returns the ids of the diagnostics in an error.
func diagnosticIDs(t *testing.T, err error) []string {
	t.Helper()
	var l diag.List
	if !errors.As(err, &l) {
		t.Fatalf("no diagnostic: %v", err)
	}
	var out []string
	for _, d := range l {
		if d.Hint == "" {
			t.Errorf("%s has no hint", d.ID)
		}
		out = append(out, d.ID)
	}
	return slices.Compact(out)
}

func siteOptions(t *testing.T, s *bundletest.Site) bundle.BuildOptions {
	return bundle.BuildOptions{
		Arches: []string{"amd64"}, Source: bundle.Upstream, Cache: t.TempDir(),
		Releases: bundletest.LoadCatalogue(t), Upstream: s.Options(),
	}
}

func TestBuild_HasAllComponentsAndImages(t *testing.T) {
	b := bundletest.BuildBundle(t, "amd64", "arm64")
	if err := b.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		for _, name := range []string{"kubernetes", "containerd", "crictl", "cni-plugins", "etcd", "nettools"} {
			c, err := b.Component(name, arch)
			if err != nil || c.Licence == "" || c.Size == 0 || len(c.Members) == 0 {
				t.Errorf("component %s %s: %+v, %v", name, arch, c, err)
			}
		}
		for _, name := range []string{
			"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy",
			"etcd", "coredns", "pause", "flannel", "echo", "haproxy", "keepalived", "apiserver-updater", "kube-vip",
			"metrics-server", "local-path", "kube-state-metrics",
		} {
			i, err := b.Image(name, arch)
			if err != nil || i.Ref == "" || len(i.Blobs) < 2 {
				t.Fatalf("image %s %s: %+v, %v", name, arch, i, err)
			}
			for _, blob := range i.Blobs {
				r, err := b.OpenBlob(blob.Digest, blob.Size-1)
				if err != nil {
					t.Fatal(err)
				}
				rest, err := io.ReadAll(r)
				if err := errors.Join(err, r.Close()); err != nil || len(rest) != 1 {
					t.Errorf("blob from its last byte: %d bytes, %v", len(rest), err)
				}
			}
		}
	}
	c, err := b.Component("kubernetes", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"usr/local/bin/kubeadm", "usr/local/bin/kubectl", "usr/local/bin/kubelet"}, c.Members); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

func TestBundle_NamesWhatIsMissing(t *testing.T) {
	b := bundletest.BuildBundle(t, "amd64")
	_, err := b.Component("kubernetes", "arm64")
	if got := diagnosticIDs(t, err); !slices.Equal(got, []string{bundle.IDArchMissing}) {
		t.Errorf("another architecture: %v", got)
	}
	_, err = b.Image("dashboard", "amd64")
	if got := diagnosticIDs(t, err); !slices.Equal(got, []string{bundle.IDPartMissing}) {
		t.Errorf("another image: %v", got)
	}
}

// TestImage_NamesBuildThatHasMissingImage: a bundle from a time before an image was added
// opens and has the other images. For the missing image, the hint names a build that adds
// it.
func TestImage_NamesBuildThatHasMissingImage(t *testing.T) {
	catalogue := bundletest.LoadCatalogue(t)
	site := bundletest.NewSite(t)
	options := site.Options()
	// These registries have none of the images, so images that are not needed are left
	// out.
	options.Sites["docker.io"] = site.Registry + "/nowhere"
	options.Sites["slipway.dev"] = "no-such-registry.invalid"
	var notes []string
	b, err := bundle.Build(t.Context(), bundle.BuildOptions{
		Arches: []string{"amd64"}, Source: bundle.Upstream, Cache: t.TempDir(), Releases: catalogue, Upstream: options,
		Progress: func(p bundle.Progress) {
			if p.Phase == source.Note {
				notes = append(notes, p.Message)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(notes) != 5 {
		t.Errorf("notes: %q", notes)
	}
	if _, err := b.Image("flannel", "amd64"); err != nil {
		t.Errorf("an existing image: %v", err)
	}
	for image, want := range map[string]string{"haproxy": "upstream", "keepalived": "modules", "apiserver-updater": "modules"} {
		_, err := b.Image(image, "amd64")
		var l diag.List
		// Without --source the cached bundle would be taken again.
		if !errors.As(err, &l) || !strings.Contains(l[0].Hint, "slipway bundle build --kubernetes v1.37.1 --arch amd64 --source "+want+"`") {
			t.Errorf("%s: %v", image, err)
		}
	}
}

// TestImage_UsesSlipwayNameAndRecordsOrigin: clusters use Slipway's own name of an image
// for each source. The bundle records the image and its origin.
func TestImage_UsesSlipwayNameAndRecordsOrigin(t *testing.T) {
	m := bundletest.BuildBundle(t, "amd64").Manifest()
	i := slices.IndexFunc(m.Images, func(i bundle.Image) bool { return i.Name == "haproxy" })
	o := slices.IndexFunc(m.Origins, func(o source.Origin) bool { return o.For == "haproxy" })
	published := bundletest.LoadCatalogue(t)
	r, err := published.ResolveVersion("")
	if err != nil {
		t.Fatal(err)
	}
	_, name, _ := strings.Cut(r.Upstream["haproxy"], "/")
	_, tag, _ := strings.Cut(name, ":")
	got := []string{m.Images[i].Ref, m.Images[i].Version, m.Origins[o].Name[strings.Index(m.Origins[o].Name, "/")+1:]}
	if diff := cmp.Diff([]string{r.ImageRefs()["haproxy"], tag, "docker.io/" + name}, got); diff != "" {
		t.Errorf("reference, version, origin (-want +got):\n%s", diff)
	}
}

// TestBuild_GivesSameBytesForSameContent: the same content gives the same bytes, for any
// cache and any order.
func TestBuild_GivesSameBytesForSameContent(t *testing.T) {
	s := bundletest.NewSite(t)
	var digests []string
	var archives [][]byte
	for range 2 {
		o := siteOptions(t, s)
		o.Out = filepath.Join(t.TempDir(), "b.tar.zst")
		b, err := bundle.Build(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(o.Out)
		if err != nil {
			t.Fatal(err)
		}
		digests, archives = append(digests, b.Digest()), append(archives, data)
	}
	if digests[0] != digests[1] || !bytes.Equal(archives[0], archives[1]) {
		t.Errorf("two builds differ: %v", digests)
	}
}

func TestOpen_AcceptsEveryForm(t *testing.T) {
	s := bundletest.NewSite(t)
	o := siteOptions(t, s)
	dir := t.TempDir()
	o.Out = filepath.Join(dir, "b.tar.zst")
	want, err := bundle.Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.Out = filepath.Join(dir, "b") + "/"
	if _, err := bundle.Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	t.Cleanup(srv.Close)
	ref := strings.TrimPrefix(srv.URL, "http://") + "/slipway/bundle:v1"
	pushBundle(t, want, ref)
	cache := t.TempDir()
	for name, path := range map[string]string{
		"directory": filepath.Join(dir, "b"), "archive": filepath.Join(dir, "b.tar.zst"),
		"registry": ref, "registry with scheme": "oci://" + ref, "the archive again": filepath.Join(dir, "b.tar.zst"),
	} {
		t.Run(name, func(t *testing.T) {
			b, err := bundle.Open(t.Context(), path, cache, bundle.Registry{})
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Verify(t.Context()); err != nil {
				t.Fatal(err)
			}
			if b.Digest() != want.Digest() {
				t.Errorf("digest %s, want %s", b.Digest(), want.Digest())
			}
			if diff := cmp.Diff(want.Manifest(), b.Manifest()); diff != "" {
				t.Errorf("manifest (-want +got):\n%s", diff)
			}
		})
	}
}

// pushBundle pushes a bundle as any other tool would: its index and all parts of it.
func pushBundle(t *testing.T, b *bundle.Bundle, ref string) {
	t.Helper()
	root, err := layout.ImageIndexFromPath(b.Path())
	if err != nil {
		t.Fatal(err)
	}
	im, err := root.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	ix, err := root.ImageIndex(im.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	r, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(r, ix, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// TestVerify_DetectsEveryDamage damages a bundle in every way and expects an error each
// time.
func TestVerify_DetectsEveryDamage(t *testing.T) {
	s := bundletest.NewSite(t)
	o := siteOptions(t, s)
	pristine, err := bundle.Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	blob := func(b *bundle.Bundle) string {
		c, err := b.Component("crictl", "amd64")
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(b.Path(), "blobs/sha256", strings.TrimPrefix(c.Digest, "sha256:"))
	}
	root := func(b *bundle.Bundle) string {
		return filepath.Join(b.Path(), "blobs/sha256", strings.TrimPrefix(b.Digest(), "sha256:"))
	}
	index := func(b *bundle.Bundle) string { return filepath.Join(b.Path(), "index.json") }
	rewrite := func(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }
	read := func(b *bundle.Bundle) string {
		data, err := os.ReadFile(index(b))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	flip := func(path string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		data[len(data)/2] ^= 1
		return os.WriteFile(path, data, 0o644)
	}
	tests := map[string]struct {
		reason string
		damage func(b *bundle.Bundle) error
		open   string // id when opening
		verify string // id when verifying, if it opens
	}{
		"flipped bit": {"only reading every byte finds it", func(b *bundle.Bundle) error { return flip(blob(b)) }, "", bundle.IDCorrupt},
		"cut short":   {"the size tells at once", func(b *bundle.Bundle) error { return os.Truncate(blob(b), 10) }, bundle.IDCorrupt, ""},
		"missing":     {"so does a blob that is gone", func(b *bundle.Bundle) error { return os.Remove(blob(b)) }, bundle.IDCorrupt, ""},
		"stranger": {
			"content that nothing names",
			func(b *bundle.Bundle) error { return os.WriteFile(blob(b)+".orig", nil, 0o644) }, "", bundle.IDCorrupt,
		},
		"damaged index": {"manifests are verified when opening", func(b *bundle.Bundle) error { return flip(root(b)) }, bundle.IDCorrupt, ""},
		"no index": {"a directory that was copied in part", func(b *bundle.Bundle) error {
			return os.Remove(index(b))
		}, bundle.IDCorrupt, ""},
		"no root":     {"likewise", func(b *bundle.Bundle) error { return os.Remove(root(b)) }, bundle.IDCorrupt, ""},
		"cut index":   {"what is no JSON is damage", func(b *bundle.Bundle) error { return os.Truncate(index(b), 20) }, bundle.IDCorrupt, ""},
		"empty index": {"a disk that was full", func(b *bundle.Bundle) error { return os.Truncate(index(b), 0) }, bundle.IDCorrupt, ""},
		"two roots": {
			"a layout of several things",
			func(b *bundle.Bundle) error { return rewrite(index(b), `{"manifests":[]}`) }, bundle.IDCorrupt, "",
		},
		"other digest": {"of a kind that none has", func(b *bundle.Bundle) error {
			return rewrite(index(b), strings.ReplaceAll(read(b), "sha256:", "sha512:"))
		}, bundle.IDCorrupt, ""},
		"grown root": {"more than any has", func(b *bundle.Bundle) error {
			return os.Truncate(root(b), 9<<20)
		}, bundle.IDCorrupt, ""},
		"directory for a file": {"what cannot be read is said, and not that it is damaged", func(b *bundle.Bundle) error {
			return errors.Join(os.Remove(root(b)), os.Mkdir(root(b), 0o755))
		}, bundle.IDUnreadable, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := o
			o.Out = filepath.Join(t.TempDir(), "b") + "/"
			if _, err := bundle.Build(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			b, err := bundle.Open(t.Context(), o.Out, t.TempDir(), bundle.Registry{})
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.damage(b); err != nil {
				t.Fatal(err)
			}
			b, err = bundle.Open(t.Context(), o.Out, t.TempDir(), bundle.Registry{})
			if tt.open != "" {
				if got := diagnosticIDs(t, err); !slices.Equal(got, []string{tt.open}) {
					t.Fatalf("%s: opening says %v", tt.reason, got)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			if got := diagnosticIDs(t, b.Verify(t.Context())); !slices.Equal(got, []string{tt.verify}) {
				t.Errorf("%s: verifying says %v", tt.reason, got)
			}
		})
	}
	if err := pristine.Verify(t.Context()); err != nil {
		t.Errorf("damage to a copy reached the cache: %v", err)
	}
}

func TestVerify_ListsAllFaults(t *testing.T) {
	b := bundletest.BuildBundle(t, "amd64")
	for _, name := range []string{"crictl", "etcd"} {
		c, err := b.Component(name, "amd64")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(b.Path(), "blobs/sha256", strings.TrimPrefix(c.Digest, "sha256:")), 1); err != nil {
			t.Fatal(err)
		}
	}
	var l diag.List
	if err := b.Verify(t.Context()); !errors.As(err, &l) || len(l) != 2 {
		t.Errorf("got %v, want two faults", l)
	}
}

func TestOpen_RefusesOtherContent(t *testing.T) {
	s := bundletest.NewSite(t)
	o := siteOptions(t, s)
	o.Out = filepath.Join(t.TempDir(), "b.tar.zst")
	if _, err := bundle.Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	pipe := func(name string) string {
		p := filepath.Join(t.TempDir(), name)
		if err := errors.Join(os.WriteFile(filepath.Join(filepath.Dir(p), "oci-layout"), nil, 0o644), syscall.Mkfifo(p, 0o644)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	tests := map[string]struct{ path, id string }{
		"half an archive":   {write("half.tar.zst", whole[:len(whole)/2]), bundle.IDTruncated},
		"almost all of one": {write("almost.tar.zst", whole[:len(whole)-100]), bundle.IDTruncated},
		"an empty file":     {write("empty.tar.zst", nil), bundle.IDTruncated},
		"another file":      {write("notes.txt", []byte("hello")), bundle.IDTruncated},
		"nothing there":     {filepath.Join(dir, "none.tar.zst"), bundle.IDNotFound},
		"relative nothing":  {"bundles/none", bundle.IDNotFound},
		"silent registry":   {"127.0.0.1:1/slipway/bundle:v1", bundle.IDPull},
		"another directory": {dir, bundle.IDNotFound},
		"a pipe":            {pipe("pipe"), bundle.IDUnreadable},
		"a device":          {"/dev/zero", bundle.IDUnreadable},
		"a pipe as index":   {filepath.Dir(pipe("index.json")), bundle.IDUnreadable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			_, err := bundle.Open(t.Context(), tt.path, cache, bundle.Registry{})
			if got := diagnosticIDs(t, err); !slices.Equal(got, []string{tt.id}) {
				t.Errorf("got %v (%v), want %s", got, err, tt.id)
			}
			if left, _ := filepath.Glob(filepath.Join(cache, "unpacked", "*")); len(left) > 0 {
				t.Errorf("an incomplete bundle remains in the cache: %v", left)
			}
		})
	}
}

func TestBuild_UsesCacheIfSourceIsSilent(t *testing.T) {
	s := bundletest.NewSite(t)
	o := siteOptions(t, s)
	want, err := bundle.Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	// Downloads are gone, the finished bundle is not.
	if err := os.RemoveAll(filepath.Join(o.Cache, "downloads")); err != nil {
		t.Fatal(err)
	}
	var notes []string
	o.Progress = func(p bundle.Progress) {
		if p.Phase == source.Note {
			notes = append(notes, p.Message)
		}
	}
	got, err := bundle.Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest() != want.Digest() || len(notes) != 1 || !strings.Contains(notes[0], "using the cached bundle") {
		t.Errorf("got %s, notes %q", got.Digest(), notes)
	}
	o.Arches = []string{"arm64"}
	if _, err := bundle.Build(t.Context(), o); !errors.Is(err, source.ErrSilent) {
		t.Errorf("an architecture that the cache lacks: %v", err)
	}
}

func TestBuild_NeedsNoNetworkTheSecondTime(t *testing.T) {
	s := bundletest.NewSite(t)
	o := siteOptions(t, s)
	want, err := bundle.Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	o.Progress = func(p bundle.Progress) {
		if p.Phase == source.Note || p.Phase == source.Fetching {
			t.Errorf("unexpected: %+v", p)
		}
	}
	got, err := bundle.Build(t.Context(), o)
	if err != nil || got.Digest() != want.Digest() {
		t.Errorf("got %v, want the same bundle again", err)
	}
}

func TestEstimateBuild_ReportsCachedBundle(t *testing.T) {
	s := bundletest.NewSite(t)
	o := siteOptions(t, s)
	o.Source = bundle.Auto
	before, err := bundle.EstimateBuild(t.Context(), o)
	if err != nil || before.Source != bundle.Upstream || before.Compile || before.SizeBytes == 0 {
		t.Errorf("with a responding upstream: %+v, %v", before, err)
	}
	b, err := bundle.Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	after, err := bundle.EstimateBuild(t.Context(), o)
	want := bundle.Estimate{Kubernetes: b.Manifest().Kubernetes, Source: "cached", SizeBytes: b.Size(), Path: b.Path()}
	if diff := cmp.Diff(want, after); diff != "" || err != nil {
		t.Errorf("with a bundle in the cache (-want +got): %v\n%s", err, diff)
	}
	if again, err := bundle.Build(t.Context(), o); err != nil || again.Digest() != b.Digest() {
		t.Errorf("building with a bundle in the cache and without a source: %v", err)
	}
	if _, ok := bundle.FindCached(o.Cache, b.Manifest().Kubernetes, []string{"amd64", "arm64"}); ok {
		t.Error("a bundle for one architecture counts for two")
	}
	o.Arches = []string{"arm64"}
	silent, err := bundle.EstimateBuild(t.Context(), o)
	if err != nil || silent.Source != bundle.Modules || !silent.Compile {
		t.Errorf("with upstream silent: %+v, %v", silent, err)
	}
}

func TestBuild_RefusesInvalidOptions(t *testing.T) {
	base := siteOptions(t, bundletest.NewSite(t))
	tests := map[string]struct {
		change func(*bundle.BuildOptions)
		id     string
	}{
		"version":      {func(o *bundle.BuildOptions) { o.Kubernetes = "v1.12.0" }, "unsupported-kubernetes"},
		"architecture": {func(o *bundle.BuildOptions) { o.Arches = []string{"vax"} }, bundle.IDUnknownArch},
		"source":       {func(o *bundle.BuildOptions) { o.Source = "wishes" }, bundle.IDUnknownName},
		"site":         {func(o *bundle.BuildOptions) { o.Upstream.Sites = map[string]string{"x": "y"} }, "unknown-upstream-site"},
		"a directory":  {func(o *bundle.BuildOptions) { o.Out = t.TempDir() }, bundle.IDOut},
		"mirror":       {func(o *bundle.BuildOptions) { o.Upstream.Mirror = "moon" }, "unknown-upstream-site"},
		"mirror, auto": {func(o *bundle.BuildOptions) { o.Source, o.Upstream.Mirror = bundle.Auto, "moon" }, "unknown-upstream-site"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := base
			tt.change(&o)
			_, err := bundle.Build(t.Context(), o)
			if got := diagnosticIDs(t, err); !slices.Equal(got, []string{tt.id}) {
				t.Errorf("got %v, want %s", got, tt.id)
			}
		})
	}
}

func TestBuild_AddsDockerOnlyIfRequested(t *testing.T) {
	site := bundletest.NewSite(t)
	o := bundle.BuildOptions{
		Arches: []string{"amd64", "arm64"}, Source: bundle.Upstream, Cache: t.TempDir(),
		Releases: bundletest.LoadCatalogue(t), Upstream: site.Options(),
	}
	plain, err := bundle.Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if got := diagnosticIDs(t, plain.CheckDocker(o.Arches))[0]; got != bundle.IDNoDocker {
		t.Errorf("a bundle without Docker: got %q", got)
	}

	o.Docker = true
	_, err = bundle.Build(t.Context(), o)
	if got := diagnosticIDs(t, err)[0]; got != upstream.IDNoChecksum || !strings.Contains(err.Error(), "docker-") {
		t.Errorf("an engine without a known checksum: got %v", err)
	}

	file := filepath.Join(t.TempDir(), "releases.yaml")
	if err := os.WriteFile(file, []byte(site.DockerSums()), 0o644); err != nil {
		t.Fatal(err)
	}
	if o.Releases, err = release.Load(file); err != nil {
		t.Fatal(err)
	}
	made, err := bundle.Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(made.CheckDocker(o.Arches), made.Verify(t.Context())); err != nil {
		t.Error(err)
	}
	var got []string
	for _, c := range made.Manifest().Components {
		if c.Arch == "amd64" && strings.Contains(c.Name, "docker") {
			got = append(got, c.Members...)
		}
	}
	if diff := cmp.Diff([]string{"usr/local/bin/cri-dockerd", "usr/local/bin/dockerd"}, slices.Sorted(slices.Values(got))); diff != "" {
		t.Errorf("Docker components (-want +got):\n%s", diff)
	}

	o.Source = bundle.Auto
	again, err := bundle.Build(t.Context(), o)
	if err != nil || again.Digest() != made.Digest() {
		t.Errorf("the bundle in the cache was not used: %v", err)
	}

	// A cached download is verified like a new one.
	site.SetFile("/docker/"+"28.5.2/amd64/docker-28.5.2.tgz", []byte("another"))
	o.Cache, o.Source = t.TempDir(), bundle.Upstream
	if _, err := bundle.Build(t.Context(), o); diagnosticIDs(t, err)[0] != upstream.IDChecksum {
		t.Errorf("another file under its name: got %v", err)
	}
}
