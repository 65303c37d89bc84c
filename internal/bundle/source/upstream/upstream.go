// Package upstream makes the parts of a bundle from official releases, with
// their published checksums, and from images in registries.
package upstream

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/bundle/pack"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/safefile"
)

// Options sets the sites and registries for downloads.
type Options struct {
	// Mirror is a preset: "" for the official sites, "cn" for mirrors in
	// China.
	Mirror string
	// Sites replaces sites of the preset, by name: a URL template with
	// {version}, {arch} and {file}, or a registry.
	Sites map[string]string
	// Insecure accepts sites over plain HTTP, and registries with any certificate.
	Insecure bool
}

// MirrorNames returns the names of the presets.
func MirrorNames() []string { return []string{"cn"} }

// A Source downloads.
type Source struct {
	opts  Options
	cache string
	files *downloader
	pulls *puller
}

const (
	// probeTimeout bounds the question whether upstream answers.
	probeTimeout = 3 * time.Second
	dialTimeout  = 10 * time.Second
	// retryDelay is the first pause before a download is taken up again.
	retryDelay = time.Second
)

// New returns a source that keeps downloads below cache.
func New(o Options, cache string) *Source {
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: stall,
		ForceAttemptHTTP2:     true,
	}
	dir := filepath.Join(cache, "downloads")
	return &Source{
		opts: o, cache: cache,
		files: &downloader{
			client: &http.Client{Transport: transport, CheckRedirect: o.checkRedirect},
			dir:    filepath.Join(dir, "files"), delay: retryDelay,
		},
		pulls: &puller{dir: filepath.Join(dir, "images"), insecure: o.Insecure},
	}
}

// Probe returns an error if the release site does not respond within three seconds.
func (s *Source) Probe(ctx context.Context, r source.Request) error {
	sites, err := newSites(s.opts)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	first := componentList(r.Release, r.Arches[0])[0].items[0]
	url := sites.fileURL(first.site, first.version, r.Arches[0], first.sums)
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
	if err != nil {
		return err
	}
	resp, err := s.files.client.Do(req)
	if err != nil {
		return unansweredError(url, err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return unansweredError(url, errors.New(resp.Status))
	}
	return nil
}

// Ready reports whether everything is in the cache.
func (s *Source) Ready(_ context.Context, r source.Request) bool {
	sites, err := newSites(s.opts)
	if err != nil {
		return false
	}
	for _, arch := range r.Arches {
		for _, c := range wantedComponents(r, arch) {
			for _, i := range c.items {
				if _, ok := s.files.findCached(sites.fileURL(i.site, i.version, arch, i.file)); !ok {
					return false
				}
			}
		}
		for name, ref := range r.Release.ImageRefs() {
			if _, ok := s.pulls.findCached(cmp.Or(r.Release.Upstream[name], ref), arch); !ok && isAlwaysNeeded(name) {
				return false
			}
		}
	}
	return true
}

// isAlwaysNeeded reports whether a cluster may need the image by default. A bundle
// without another image serves clusters that do not request it.
func isAlwaysNeeded(image string) bool {
	return !slices.Contains([]string{
		"echo", "haproxy", "keepalived", "apiserver-updater", "kube-vip", "kube-state-metrics", "metrics-server", "local-path",
	}, image)
}

// Parts downloads everything that is not in the cache.
func (s *Source) Parts(ctx context.Context, r source.Request) (source.Parts, error) {
	sites, err := newSites(s.opts)
	if err != nil {
		return source.Parts{}, err
	}
	if err := requireChecksums(r); err != nil {
		return source.Parts{}, err
	}
	if err := safefile.MkdirAll(s.cache, 0o755); err != nil {
		return source.Parts{}, err
	}
	scratch, err := safefile.MkdirTemp(s.cache, ".upstream-*", 0o755)
	if err != nil {
		return source.Parts{}, err
	}
	defer func() { _ = safefile.RemoveAll(scratch) }() // it is scratch
	var parts source.Parts
	for _, arch := range r.Arches {
		run := &runner{Source: s, sites: sites, request: r, arch: arch, scratch: filepath.Join(scratch, arch)}
		got, err := run.downloadParts(ctx)
		if err != nil {
			return source.Parts{}, err
		}
		parts.Append(got)
	}
	return parts, nil
}

// A runner downloads for one architecture.
type runner struct {
	*Source
	sites   sites
	request source.Request
	arch    string
	scratch string
	origins []source.Origin
}

// progressFor returns a function that reports the progress of a component.
func (r *runner) progressFor(name string) func(source.Progress) {
	started := time.Now()
	return func(p source.Progress) {
		p.Component = name + " linux/" + r.arch
		p.Elapsed = time.Since(started)
		r.request.ReportProgress(p)
	}
}

func (r *runner) downloadParts(ctx context.Context) (source.Parts, error) {
	var parts source.Parts
	for _, c := range wantedComponents(r.request, r.arch) {
		got, err := r.downloadComponent(ctx, c)
		if err != nil {
			return source.Parts{}, err
		}
		parts.Components = append(parts.Components, got)
	}
	images, err := r.pullImages(ctx)
	if err != nil {
		return source.Parts{}, err
	}
	parts.Images = images
	i := slices.IndexFunc(images, func(i source.Image) bool { return i.Name == "kube-proxy" })
	tools, err := r.netTools(ctx, images[i].Image)
	if err != nil {
		return source.Parts{}, fmt.Errorf("extracting the packet filter programs from the kube-proxy image: %w", err)
	}
	parts.Components = append(parts.Components, tools)
	parts.Origins = r.origins
	return parts, nil
}

func (r *runner) downloadComponent(ctx context.Context, c component) (source.Component, error) {
	tell := r.progressFor(c.name + " " + c.version)
	var files []download
	for _, i := range c.items {
		url := r.sites.fileURL(i.site, i.version, r.arch, i.file)
		got, err := r.downloadFile(ctx, i, url, tell)
		if err != nil {
			return source.Component{}, err
		}
		files = append(files, got)
		r.origins = append(r.origins, source.Origin{For: c.name, Kind: "file", Name: url, Version: i.version, Sum: "sha256:" + got.sum})
	}
	return r.packComponent(ctx, c, fmt.Sprint(files, c.items), tell, func() ([]pack.Member, error) {
		var members []pack.Member
		for n, i := range c.items {
			if len(i.members) == 0 {
				members = append(members, pack.Member{Name: i.program, Path: files[n].path})
				continue
			}
			unpacked, err := extractMembers(ctx, files[n].path, filepath.Join(r.scratch, fmt.Sprintf("%s-%d", c.name, n)), i.members)
			if err != nil {
				return nil, fmt.Errorf("unpacking %s: %w", i.file, err)
			}
			members = append(members, unpacked...)
		}
		return members, nil
	})
}

// downloadFile downloads a file whose checksum is published or known.
func (r *runner) downloadFile(ctx context.Context, i item, url string, tell func(source.Progress)) (download, error) {
	if i.sums == "" {
		return r.files.getKnown(ctx, url, i.sum, tell)
	}
	return r.files.getPublished(ctx, url, r.sites.fileURL(i.site, i.version, r.arch, i.sums), tell)
}

// packComponent packs a component's file from members, unless the cache has the file for
// the same content.
func (r *runner) packComponent(ctx context.Context, c component, content string, tell func(source.Progress),
	members func() ([]pack.Member, error),
) (source.Component, error) {
	sum := sha256.Sum256([]byte(content))
	dir := filepath.Join(r.cache, "downloads", "components")
	name := filepath.Join(dir, c.name+"-"+hex.EncodeToString(sum[:8]))
	out := source.Component{Name: c.name, Version: c.version, Arch: r.arch, Licence: c.licence}
	if f, ok := findPacked(name); ok {
		tell(source.Progress{Phase: source.Cached})
		out.File = f
		return out, nil
	}
	tell(source.Progress{Phase: source.Packing})
	if err := safefile.MkdirAll(dir, 0o755); err != nil {
		return source.Component{}, err
	}
	list, err := members()
	if err != nil {
		return source.Component{}, err
	}
	f, err := pack.Write(ctx, name+".tar.gz", list)
	if err != nil {
		return source.Component{}, err
	}
	data, err := json.Marshal(f)
	if err != nil {
		return source.Component{}, err
	}
	if err := safefile.WriteFile(name+".json", data, 0o644); err != nil {
		return source.Component{}, err
	}
	tell(source.Progress{Phase: source.Done, Done: f.Size, Total: f.Size, Unit: "bytes"})
	out.File = f
	return out, nil
}

// findPacked returns a component's file from the cache, if it is complete.
func findPacked(name string) (pack.File, bool) {
	var f pack.File
	data, err := safefile.ReadFile(name+".json", bounded.Record)
	if err != nil || json.Unmarshal(data, &f) != nil {
		return pack.File{}, false
	}
	f.Path = name + ".tar.gz"
	return f, verifyFile(f.Path, strings.TrimPrefix(f.Digest, "sha256:")) == nil
}

func (r *runner) netTools(ctx context.Context, proxy v1.Image) (source.Component, error) {
	digest, err := proxy.Digest()
	if err != nil {
		return source.Component{}, err
	}
	c := component{name: "nettools", version: r.request.Release.Kubernetes, licence: "GPL-2.0-only AND GPL-2.0-or-later AND LGPL-2.1-or-later"}
	return r.packComponent(ctx, c, digest.String(), r.progressFor(c.name+" "+c.version), func() ([]pack.Member, error) {
		return netTools(ctx, proxy, r.arch, filepath.Join(r.scratch, "nettools"))
	})
}

func (r *runner) pullImages(ctx context.Context) ([]source.Image, error) {
	var out []source.Image
	refs := r.request.Release.ImageRefs()
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		ref := refs[name]
		tell := r.progressFor("image " + name)
		from := cmp.Or(r.request.Release.Upstream[name], ref)
		img, err := r.pulls.getImage(ctx, from, r.sites.pullReference(from), r.arch, tell)
		if !isAlwaysNeeded(name) && isMissing(err) {
			r.request.ReportProgress(source.Progress{
				Phase:   source.Note,
				Message: fmt.Sprintf("no registry has %s: the bundle is built without it, for clusters that do not need %s", from, name),
			})
			continue
		}
		if err != nil {
			return nil, err
		}
		h, err := img.Digest()
		if err != nil {
			return nil, err
		}
		tell(source.Progress{Phase: source.Done})
		r.origins = append(r.origins, source.Origin{For: name, Kind: "image", Name: r.sites.pullReference(from), Sum: h.String()})
		_, version, _ := strings.Cut(from[strings.LastIndex(from, "/"):], ":")
		out = append(out,
			source.Image{Name: name, Version: strings.TrimPrefix(version, "v"), Arch: r.arch, Licence: imageLicence(name), Ref: ref, Image: img})
	}
	return out, nil
}

// imageLicence returns the licence of an official image: the licences of its program and
// of its base system.
func imageLicence(image string) string {
	switch image {
	case "kube-proxy", "flannel":
		return "Apache-2.0 AND GPL-2.0-only AND GPL-2.0-or-later AND LGPL-2.1-or-later"
	case "keepalived":
		return "Apache-2.0 AND (Artistic-1.0-Perl OR GPL-1.0-or-later) AND BSD-2-Clause AND BSD-3-Clause AND " +
			"GPL-2.0-or-later AND LGPL-2.1-or-later AND MIT AND MPL-2.0 AND Zlib"
	case "haproxy":
		return "Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND GPL-2.0-or-later AND GPL-3.0-or-later WITH " +
			"GCC-exception-3.1 AND LGPL-2.1-or-later AND MIT"
	}
	return apache
}
