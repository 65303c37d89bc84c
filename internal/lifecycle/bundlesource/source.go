package bundlesource

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundlestore"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/module"
)

// A Source finds or builds the bundle of a cluster.
type Source struct {
	in     *Finder
	env    module.Env
	arches []string
	opened atomic.Pointer[bundle.Bundle] // set by a task, read while blobs are served
	used   *uses
}

// uses are the bundles that are kept in the cache for an operation.
type uses struct {
	mu       sync.Mutex
	releases []func() error
}

// ArchitecturesOf returns the architectures of hosts, or of this machine if no host has one.
func ArchitecturesOf(hosts []*engine.Host) []string {
	var arches []string
	for _, h := range hosts {
		if a := module.HostArch(h); a != "" && !slices.Contains(arches, a) {
			arches = append(arches, a)
		}
	}
	if len(arches) == 0 {
		arches = []string{runtime.GOARCH}
	}
	slices.Sort(arches)
	return arches
}

// NewSource returns the source of the bundle of a cluster for some architectures.
func (f *Finder) NewSource(env module.Env, arches []string) *Source {
	return &Source{in: f, env: env, arches: arches, used: new(uses)}
}

// ForCluster returns the source of the bundle of another cluster for the same architectures.
func (b *Source) ForCluster(env module.Env) *Source {
	return &Source{in: b.in, env: env, arches: b.arches, used: b.used}
}

// Close ends the use of the bundles, also of sources for other clusters. A nil source has none.
func (b *Source) Close() (err error) {
	if b == nil {
		return nil
	}
	b.used.mu.Lock()
	defer b.used.mu.Unlock()
	for _, release := range b.used.releases {
		err = errors.Join(err, release())
	}
	b.used.releases = nil
	return err
}

// useBundle keeps an open bundle in the cache until Close.
func (b *Source) useBundle(ctx context.Context, opened *bundle.Bundle) error {
	release, err := bundlestore.Use(ctx, opened, b.in.c.Cache, b.in.c.Now())
	if err != nil {
		return err
	}
	b.used.mu.Lock()
	b.used.releases = append(b.used.releases, release)
	b.used.mu.Unlock()
	b.opened.Store(opened)
	return nil
}

// OpenedBundle returns the bundle, nil if it is not open yet.
func (b *Source) OpenedBundle() *bundle.Bundle { return b.opened.Load() }

// Architectures returns the architectures of the bundle, nil if it is not open yet.
func (b *Source) Architectures() []string {
	if opened := b.opened.Load(); opened != nil {
		return opened.Manifest().Arches
	}
	return nil
}

// bundlePath returns the path of the bundle, "" if it has to be built.
func (b *Source) bundlePath() string {
	if named := b.env.Cluster.Spec.Bundle; named != "" {
		return named
	}
	keys, _ := b.readKeys() // Have reports invalid keys
	path, _ := bundle.FindCached(b.in.c.Cache, b.env.Release.Kubernetes, b.arches, keys...)
	return path
}

// readKeys returns the keys of which one must have signed the bundle.
func (b *Source) readKeys() ([]bundle.Key, error) {
	var keys []bundle.Key
	for _, text := range b.env.Cluster.Spec.BundleKeys {
		k, err := bundle.ReadKey(text)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// Have opens the bundle if it exists.
func (b *Source) Have(ctx context.Context) (module.Content, error) {
	if opened := b.opened.Load(); opened != nil {
		return opened, nil
	}
	keys, err := b.readKeys()
	if err != nil {
		return nil, err
	}
	path := b.bundlePath()
	if path == "" {
		return nil, b.mayMake(keys)
	}
	opened, err := bundle.Open(ctx, path, b.in.c.Cache, RegistryOf(b.env), keys...)
	if err != nil {
		return nil, err
	}
	if v := opened.Manifest().Kubernetes; v != b.env.Release.Kubernetes {
		return nil, diag.Refuse(idBundleVersion,
			fmt.Sprintf("the bundle has Kubernetes %s, but the cluster needs %s", v, b.env.Release.Kubernetes),
			"use another bundle, or set spec.kubernetes.version to "+v)
	}
	if err := errors.Join(opened.CheckSigned(keys), b.checkDocker(opened)); err != nil {
		return nil, err
	}
	return opened, b.useBundle(ctx, opened)
}

// mayMake returns an error if the bundle cannot be built during the operation, because
// such a bundle has no signature and no Docker.
func (b *Source) mayMake(keys []bundle.Key) error {
	if b.env.UsesDocker() { // Docker releases need a checksum that the user provides
		return bundle.WithoutDocker(b.env.Release.Kubernetes, b.arches,
			"the cache has no bundle of "+b.env.Release.Kubernetes+", and bundles for runtime docker are not built automatically")
	}
	if len(keys) == 0 {
		return nil
	}
	return diag.Refuse(bundle.IDUnsigned,
		"the cache has no bundle of "+b.env.Release.Kubernetes+" for "+strings.Join(b.arches, ", ")+
			" with a signature of a key of spec.bundleKeys",
		"add a signed bundle with 'slipway bundle import' or 'slipway bundle pull'")
}

// checkDocker refuses, for a cluster with Docker, a bundle without Docker or with images
// that Docker cannot load.
func (b *Source) checkDocker(opened *bundle.Bundle) error {
	if !b.env.UsesDocker() {
		return nil
	}
	return errors.Join(opened.CheckDocker(b.arches), opened.CheckTags())
}

// Make builds the bundle.
func (b *Source) Make(ctx context.Context, tell func(event.Event)) (module.Content, error) {
	o := b.BuildOptions()
	o.Progress = (&building{now: b.in.c.Now, tell: tell}).reportProgress
	opened, err := bundle.Build(ctx, o)
	if err != nil {
		return nil, err
	}
	return opened, b.useBundle(ctx, opened)
}

// Describe returns what Make would do.
func (b *Source) Describe() string { return "build for Kubernetes " + b.env.Release.Kubernetes }

// BuildOptions returns the options of a build.
func (b *Source) BuildOptions() bundle.BuildOptions {
	return bundle.BuildOptions{
		Kubernetes: b.env.Release.Kubernetes, Arches: b.arches, Source: b.in.c.Source,
		Cache: b.in.c.Cache, Owner: b.in.c.Owner, Releases: b.in.c.Catalogue,
	}
}
