package bundle

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"

	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/bundle/source/modules"
	"slipway.dev/slipway/internal/bundle/source/upstream"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/safefile"
)

// The sources of a bundle.
const (
	Auto     = "auto"     // the cache, else upstream if it answers, else modules
	Upstream = "upstream" // official releases and registries
	Modules  = "modules"  // compiled from Go modules
)

// Arches lists the supported architectures of a bundle.
var Arches = []string{"amd64", "arm64"}

// Progress reports the progress of a build.
type Progress = source.Progress

// BuildOptions configure a build. Cache and Releases are required.
type BuildOptions struct {
	// Kubernetes is a version that the catalogue resolves; "" is its default.
	Kubernetes string
	// Arches default to the architecture of this machine.
	Arches []string
	// Source is Auto (also ""), Upstream or Modules.
	Source string
	// Docker adds the parts for runtime docker.
	Docker bool
	// Operators are slipwayd programs, one for each architecture. The bundle then has the image of the operator.
	Operators []string
	// Components are versions that replace versions of the catalogue.
	Components release.Components
	// Images lists additional images by reference, and Registry configures the access to
	// their registries.
	Images   []string
	Registry Registry
	// Out is the path for a copy: a .tar.zst file, or a directory if it ends in a slash.
	// The bundle is stored in the cache in any case.
	Out string
	// Cache is the directory for downloads, builds and bundles.
	Cache string
	// Owner is the owner of the cache: under sudo, the caller. Compilers run as the
	// owner, unless the cache belongs to root.
	Owner *fileowner.Owner
	// Releases is the release catalogue.
	Releases *release.Catalogue
	// Upstream configures the sites for downloads of releases and images.
	Upstream upstream.Options
	// Environ is the environment of the go tool; nil is the environment of the process.
	Environ []string
	// Progress, if set, is called with one call at a time.
	Progress func(Progress)
}

// A Source provides the parts of a bundle.
type Source interface {
	// Probe returns an error if the source cannot be used, without fetching anything
	// large. It has a time limit.
	Probe(ctx context.Context, r source.Request) error
	// Ready reports whether the cache has everything that Parts would fetch or compile.
	Ready(ctx context.Context, r source.Request) bool
	// Parts fetches or compiles everything for the request.
	Parts(ctx context.Context, r source.Request) (source.Parts, error)
}

// An Estimate describes the cost of a build, or the bundle in the cache.
type Estimate struct {
	// Kubernetes is the resolved version: "v1.37.1".
	Kubernetes string
	// Source is cached, modules or upstream.
	Source string
	// SizeBytes is exact for a cached bundle and typical otherwise.
	SizeBytes int64
	// Compile reports whether programs must be compiled, which takes minutes.
	Compile bool
	// Path is the path of the cached bundle.
	Path string
}

// typicalSize is the typical size of a bundle for one architecture, in bytes.
const typicalSize = 180 << 20

// A builder is a build with resolved options.
type builder struct {
	BuildOptions
	request source.Request
	sources map[string]Source
}

func newBuilder(o BuildOptions) (*builder, error) {
	r, err := o.Releases.ResolveVersion(o.Kubernetes)
	if err != nil {
		return nil, err
	}
	if r, err = (ManifestRequest{Components: o.Components}).applyVersions(r); err != nil {
		return nil, err
	}
	if len(o.Arches) == 0 {
		o.Arches = []string{runtime.GOARCH}
	}
	o.Arches = slices.Compact(slices.Sorted(slices.Values(o.Arches)))
	if err := CheckArches(o.Arches); err != nil {
		return nil, err
	}
	if o.Out != "" {
		if err := CheckOut(o.Out); err != nil {
			return nil, err
		}
	}
	o.Upstream.Insecure = o.Upstream.Insecure || o.Registry.Insecure
	if err := o.Upstream.CheckSites(); err != nil {
		return nil, err
	}
	b := &builder{BuildOptions: o, request: source.Request{Release: r, Arches: o.Arches, Docker: o.Docker, Report: o.Progress}}
	b.sources = map[string]Source{
		Upstream: upstream.New(o.Upstream, o.Cache),
		Modules:  modules.New(modules.Options{Cache: o.Cache, Environ: o.Environ, Owner: o.Owner}),
	}
	return b, nil
}

// Build creates a bundle in the cache. Content that the cache has is neither fetched nor
// compiled again. If the source does not answer and the cache has a bundle of the
// version, Build uses it and reports a Note.
func Build(ctx context.Context, o BuildOptions) (*Bundle, error) {
	b, err := newBuilder(o)
	if err != nil {
		return nil, err
	}
	return b.buildBundle(ctx)
}

// EstimateBuild returns the estimate for Build, without building.
func EstimateBuild(ctx context.Context, o BuildOptions) (Estimate, error) {
	b, err := newBuilder(o)
	if err != nil {
		return Estimate{}, err
	}
	return b.estimateWork(ctx)
}

func (b *builder) estimateWork(ctx context.Context) (Estimate, error) {
	e := Estimate{Kubernetes: b.request.Release.Kubernetes}
	if path, ok := b.findCached(); ok {
		have, err := openDir(path)
		if err == nil {
			e.Source, e.Path, e.SizeBytes = "cached", path, have.Size()
			return e, nil
		}
	}
	name, err := b.chooseSource(ctx)
	if err != nil {
		return Estimate{}, err
	}
	e.Source = name
	e.SizeBytes = typicalSize * int64(len(b.request.Arches))
	e.Compile = name == Modules && !b.sources[name].Ready(ctx, b.request)
	return e, nil
}

// chooseSource resolves Auto: upstream if it answers, else modules.
func (b *builder) chooseSource(ctx context.Context) (string, error) {
	switch b.Source {
	case Upstream, Modules:
		return b.Source, nil
	case Auto, "":
		err := b.sources[Upstream].Probe(ctx, b.request)
		if err == nil {
			return Upstream, nil
		}
		b.request.ReportProgress(Progress{
			Phase:   source.Note,
			Message: fmt.Sprintf("the upstream source does not answer (%v): compiling from modules instead", err),
		})
		return Modules, ctx.Err()
	}
	return "", newProblem(IDUnknownName, "use auto, upstream or modules", "%q is not a bundle source", b.Source)
}

func (b *builder) buildBundle(ctx context.Context) (*Bundle, error) {
	have, err := b.obtainBundle(ctx)
	if err != nil {
		return nil, explainError(b.Cache, err)
	}
	if b.Out == "" {
		return have, nil
	}
	b.request.ReportProgress(Progress{Component: "bundle", Phase: source.Packing, Message: b.Out, Total: have.Size(), Unit: "bytes"})
	return have, Export(ctx, have, b.Out)
}

// obtainBundle gets the bundle from its source. If no source is named, a bundle in the cache is
// used without a request to any source.
func (b *builder) obtainBundle(ctx context.Context) (*Bundle, error) {
	if b.Source == Auto || b.Source == "" {
		if path, ok := b.findCached(); ok {
			have, err := openVerified(ctx, path)
			if !isCorrupt(err) {
				b.request.ReportProgress(Progress{Phase: source.Note, Message: "using the cached bundle " + path})
				return have, err
			}
			b.request.ReportProgress(Progress{
				Phase:   source.Note,
				Message: fmt.Sprintf("the bundle in the cache is damaged and will be built again: %v", err),
			})
		}
	}
	name, err := b.chooseSource(ctx)
	if err != nil {
		return nil, err
	}
	have, err := b.fromSource(ctx, name)
	if errors.Is(err, source.ErrSilent) && ctx.Err() == nil {
		return b.fromCache(ctx, name, err)
	}
	return have, err
}

// findCached finds a bundle in the cache with the requested content.
func (b *builder) findCached() (path string, ok bool) {
	path, ok = FindCached(b.Cache, b.request.Release.Kubernetes, b.request.Arches)
	if len(b.Operators) > 0 {
		return path, false // the programs can have changed
	}
	if !ok || !b.Docker && len(b.Images) == 0 && b.Components == (release.Components{}) {
		return path, ok
	}
	have, err := openDir(path)
	if err != nil || b.Docker && have.CheckDocker(b.request.Arches) != nil || !have.hasExtras(b.Images, b.request.Arches) {
		return path, false
	}
	return path, b.Components == (release.Components{}) || have.hasVersions(b.request.Release)
}

// hasVersions reports whether programs for hosts have the requested versions.
func (b *Bundle) hasVersions(r release.Release) bool {
	want := map[string]string{"containerd": r.Containerd, "crictl": r.CRITools, "cni-plugins": r.CNIPlugins, "registry": r.Registry}
	for _, c := range b.manifest.Components {
		if v, ok := want[c.Name]; ok && v != c.Version {
			return false
		}
	}
	return true
}

// fromCache uses a bundle of the version from the cache, because the source does not
// answer.
func (b *builder) fromCache(ctx context.Context, name string, cause error) (*Bundle, error) {
	path, ok := b.findCached()
	if !ok {
		return nil, cause
	}
	have, err := openVerified(ctx, path)
	if err != nil {
		return nil, errors.Join(cause, err)
	}
	b.request.ReportProgress(Progress{
		Phase:   source.Note,
		Message: fmt.Sprintf("%s does not answer: using the cached bundle %s (%v)", name, path, cause),
	})
	return have, nil
}

func (b *builder) fromSource(ctx context.Context, name string) (*Bundle, error) {
	var more source.Parts
	if err := b.addExtras(ctx, &more); err != nil { // before anything is compiled
		return nil, err
	}
	if err := b.addOperator(ctx, &more); err != nil {
		return nil, err
	}
	parts, err := b.sources[name].Parts(ctx, b.request)
	if err != nil {
		return nil, err
	}
	parts.Append(more)
	dir := filepath.Join(b.Cache, "bundles")
	if err := safefile.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	tmp, err := safefile.MkdirTemp(dir, ".build-*", 0o755)
	if err != nil {
		return nil, err
	}
	defer func() { _ = safefile.RemoveAll(tmp) }() // it has been renamed by then
	head := Manifest{Kubernetes: b.request.Release.Kubernetes, Arches: b.request.Arches, Source: name}
	if err := assembleLayout(tmp, head, parts); err != nil {
		return nil, fmt.Errorf("assembling the bundle: %w", err)
	}
	made, err := openDir(tmp)
	if err != nil {
		return nil, err
	}
	return keepInCache(ctx, b.Cache, made, nil)
}
