// Package bundletest serves tiny releases and images on loopback and makes
// bundles of them, for tests.
package bundletest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/bundle/source/upstream"
	"slipway.dev/slipway/internal/release"
)

// A Site is a release site and a registry on loopback.
type Site struct {
	Release release.Release
	// URL and Registry are the addresses of the two.
	URL, Registry string

	mu sync.Mutex
	// files has the files of the release site, by path.
	files map[string][]byte

	servers []*httptest.Server
}

// NewSite serves everything that a bundle of the default release needs, and of
// more of them, for amd64 and arm64, until the test ends.
func NewSite(t testing.TB, more ...string) *Site {
	t.Helper()
	r, err := LoadCatalogue(t).ResolveVersion("")
	if err != nil {
		t.Fatal(err)
	}
	s := &Site{Release: r, files: map[string][]byte{}}
	web := httptest.NewServer(http.HandlerFunc(s.serveFile))
	reg := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	s.servers = []*httptest.Server{web, reg}
	s.URL, s.Registry = web.URL, strings.TrimPrefix(reg.URL, "http://")
	t.Cleanup(s.Close)
	s.AddRelease(t, r)
	for _, version := range more {
		if r, err = LoadCatalogue(t).ResolveVersion(version); err != nil {
			t.Fatal(err)
		}
		s.AddRelease(t, r)
	}
	return s
}

// AddRelease serves a release.
func (s *Site) AddRelease(t testing.TB, r release.Release) {
	for _, arch := range bundle.Arches {
		s.addReleaseFiles(r, arch)
	}
	for short, ref := range r.ImageRefs() {
		s.pushImage(t, short, cmp.Or(r.Upstream[short], ref))
	}
}

// LoadCatalogue returns the embedded release catalogue.
func LoadCatalogue(t testing.TB) *release.Catalogue {
	t.Helper()
	c, err := release.Load("")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Close stops the servers: the site does not respond afterwards.
func (s *Site) Close() {
	for _, srv := range s.servers {
		srv.CloseClientConnections()
		srv.Close()
	}
	s.servers = nil
}

// SetFile replaces the file at a path; nil removes it.
func (s *Site) SetFile(path string, content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[path] = content; content == nil {
		delete(s.files, path)
	}
}

func (s *Site) serveFile(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	content, ok := s.files[r.URL.Path]
	s.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	if _, err := w.Write(content); err != nil {
		return // the client went away
	}
}

// Options returns the options with which the source upstream finds the site.
func (s *Site) Options() upstream.Options {
	sites := map[string]string{}
	for _, name := range []string{"kubernetes", "containerd", "runc", "crictl", "cni-plugins", "etcd", "registry", "docker", "cri-dockerd"} {
		sites[name] = s.URL + "/" + name + "/{version}/{arch}/{file}"
	}
	for _, reg := range []string{"registry.k8s.io", "ghcr.io", "docker.io", "slipway.dev"} {
		sites[reg] = s.Registry + "/" + reg
	}
	return upstream.Options{Sites: sites}
}

// BuildBundle builds a bundle from a site, in a separate cache for the test.
func BuildBundle(t testing.TB, arches ...string) *bundle.Bundle {
	t.Helper()
	b, err := bundle.Build(t.Context(), bundle.BuildOptions{
		Arches: arches, Source: bundle.Upstream, Cache: t.TempDir(),
		Releases: LoadCatalogue(t), Upstream: NewSite(t).Options(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fakeProgram returns the content of a file that stands in for a program.
func fakeProgram(name, version, arch string) []byte {
	return []byte("#!/bin/sh\necho " + name + " " + version + " " + arch + "\n")
}

func (s *Site) addReleaseFiles(r release.Release, arch string) {
	k8s := strings.TrimPrefix(r.Kubernetes, "v")
	dir := func(site, version string) string { return "/" + site + "/" + version + "/" + arch + "/" }
	for _, p := range []string{"kubeadm", "kubectl", "kubelet"} {
		s.putFile(dir("kubernetes", k8s), p, p+".sha256", fakeProgram(p, k8s, arch), true)
	}
	archive := func(site, version, file, sums, prefix string, programs ...string) {
		members := map[string][]byte{}
		for _, p := range programs {
			members[prefix+p] = fakeProgram(p, version, arch)
		}
		s.putFile(dir(site, version), file, sums, packTarGz(members), false)
	}
	file := fmt.Sprintf("containerd-%s-linux-%s.tar.gz", r.Containerd, arch)
	archive("containerd", r.Containerd, file, file+".sha256sum", "bin/", "containerd", "containerd-shim-runc-v2", "ctr", "containerd-stress")
	s.putFile(dir("runc", r.Runc), "runc."+arch, "runc.sha256sum", fakeProgram("runc", r.Runc, arch), false)
	file = fmt.Sprintf("crictl-v%s-linux-%s.tar.gz", r.CRITools, arch)
	archive("crictl", r.CRITools, file, file+".sha256", "", "crictl")
	for _, v := range []string{r.CNIPlugins, r.FlannelCNI} {
		file = fmt.Sprintf("cni-plugins-linux-%s-v%s.tgz", arch, v)
		archive("cni-plugins", v, file, file+".sha256", "./", "bridge", "loopback", "ptp", "host-local", "portmap",
			"bandwidth", "firewall", "flannel")
	}
	file = fmt.Sprintf("registry_%s_linux_%s.tar.gz", r.Registry, arch)
	archive("registry", r.Registry, file, file+".sha256", "", "registry")
	file = fmt.Sprintf("docker-%s.tgz", r.Docker.Engine)
	archive("docker", r.Docker.Engine, file, "unpublished", "docker/", "docker", "dockerd", "containerd", "runc")
	file = fmt.Sprintf("cri-dockerd-%s.%s.tgz", r.Docker.CRIDockerd, arch)
	archive("cri-dockerd", r.Docker.CRIDockerd, file, "unpublished", "cri-dockerd/", "cri-dockerd")
	top := fmt.Sprintf("etcd-v%s-linux-%s", r.Etcd, arch)
	archive("etcd", r.Etcd, top+".tar.gz", "SHA256SUMS", top+"/", "etcd", "etcdctl", "etcdutl")
}

// DockerSums returns the checksums of the site's Docker files as a table of a release
// catalogue.
func (s *Site) DockerSums() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := "docker:\n  sums:\n"
	for path, content := range s.files {
		part := strings.Split(path, "/") // "", site, version, arch, file
		if (part[1] == "docker" || part[1] == "cri-dockerd") && part[4] != "unpublished" {
			text += fmt.Sprintf("    %s/%s: %x\n", part[3], part[4], sha256.Sum256(content))
		}
	}
	return text
}

// putFile serves a file and its checksum: alone, or in a list.
func (s *Site) putFile(dir, file, sums string, content []byte, alone bool) {
	sum := sha256.Sum256(content)
	text := hex.EncodeToString(sum[:])
	if !alone {
		text = strings.Repeat("0", 64) + "  another-file\n" + text + "  " + file + "\n"
	}
	s.SetFile(dir+file, content)
	s.SetFile(dir+sums, []byte(text))
}

// packTarGz makes an archive. Writing to memory does not fail.
func packTarGz(members map[string][]byte) []byte {
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	for name, content := range members {
		_ = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content))})
		_, _ = tw.Write(content)
	}
	_ = errors.Join(tw.Close(), zw.Close())
	return b.Bytes()
}

// pushImage puts a tiny image for both architectures into the registry.
func (s *Site) pushImage(t testing.TB, short, ref string) {
	t.Helper()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range bundle.Arches {
		members := map[string][]byte{short: fakeProgram(short, ref, arch)}
		if short == "kube-proxy" {
			members["usr/sbin/nft"] = fakeProgram("nft", ref, arch)
			members["lib/"+strings.TrimPrefix(source.LibDir(arch), "usr/lib/")+"/"+loaders[arch]] = fakeProgram("ld.so", ref, arch)
		}
		data := packTarGz(members)
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
		if err != nil {
			t.Fatal(err)
		}
		img, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
			types.OCIConfigJSON), layer)
		if err != nil {
			t.Fatal(err)
		}
		cf, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		cf = cf.DeepCopy()
		cf.OS, cf.Architecture = "linux", arch
		if img, err = mutate.ConfigFile(img, cf); err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index,
			mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	r, err := name.ParseReference(s.Registry + "/" + ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(r, index, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
}

var loaders = map[string]string{"amd64": "ld-linux-x86-64.so.2", "arm64": "ld-linux-aarch64.so.1"}
