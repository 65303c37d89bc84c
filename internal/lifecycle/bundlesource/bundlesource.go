// Package bundlesource finds or builds the bundles of clusters, and resolves the Kubernetes
// releases that bundles and the catalogue have.
package bundlesource

import (
	"context"
	"fmt"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	idBundleVersion    = "bundle-version"
	idSecretUnreadable = "secret-unreadable" // as in package spec
)

// A Config configures a Finder.
type Config struct {
	Owner     *fileowner.Owner // of what is downloaded and built
	Catalogue *release.Catalogue
	// Cache is the directory for downloads, builds and bundles.
	Cache string
	// Source is the source for building bundles: bundle.Auto if empty.
	Source string
	// FilesDir is the directory of the files of a Cluster object, "" for a cluster file.
	FilesDir string
	Now      func() time.Time
}

// A Finder finds bundles and releases for clusters.
type Finder struct{ c Config }

// New returns a finder.
func New(c Config) *Finder { return &Finder{c: c} }

// OpenBundle opens the bundle of a cluster for an architecture. It returns nil if no bundle
// is available.
func (f *Finder) OpenBundle(ctx context.Context, env module.Env, arch string) (*bundle.Bundle, error) {
	if named := env.Cluster.Spec.Bundle; named != "" && !spec.IsBundlePath(named) { // it may be in one of the cluster's registries
		var err error
		if env.Passwords, err = ReadPasswords(env.Cluster); err != nil {
			return nil, err
		}
	}
	src := f.NewSource(env, []string{arch})
	defer func() { _ = src.Close() }() // it was only locked
	if _, err := src.Have(ctx); err != nil {
		return nil, err
	}
	return src.OpenedBundle(), nil
}

// ListReleases returns the catalogue. If it does not have the version, later minors of
// bundles are added: of bundles in the cache and of the named ones, "" for none.
func (f *Finder) ListReleases(ctx context.Context, c *v1alpha1.Cluster, version string, named ...string) (*release.Catalogue, error) {
	if _, err := f.c.Catalogue.ResolveVersion(version); err == nil {
		return f.c.Catalogue, nil
	}
	env := module.Env{Cluster: c}
	var err error
	if env.Passwords, err = ReadPasswords(c); err != nil {
		return nil, err
	}
	named = slices.DeleteFunc(named, func(name string) bool { return name == "" })
	return bundle.ExtendCatalogue(ctx, f.c.Catalogue, f.c.Cache, RegistryOf(env), named...)
}

// ResolveRelease returns the release for a version of a cluster.
func (f *Finder) ResolveRelease(ctx context.Context, c *v1alpha1.Cluster, version string, named ...string) (release.Release, error) {
	known, err := f.ListReleases(ctx, c, version, named...)
	if err != nil {
		return release.Release{}, err
	}
	return known.ResolveVersion(version)
}

// releaseOf returns the release of a cluster. A running cluster can be maintained even if
// its bundle, the only source of its component versions, no longer exists.
func (f *Finder) releaseOf(ctx context.Context, c *v1alpha1.Cluster) (release.Release, error) {
	version := c.Spec.Kubernetes.Version
	r, err := f.ResolveRelease(ctx, c, version, c.Spec.Bundle)
	if err != nil && c.Status.Version == version {
		return f.c.Catalogue.WithVersion(version, release.Components{}).ResolveVersion(version)
	}
	return r, err
}

// Environment returns the environment for pipelines of a cluster.
func (f *Finder) Environment(ctx context.Context, c *v1alpha1.Cluster) (module.Env, error) {
	rel, err := f.releaseOf(ctx, c)
	if err != nil {
		return module.Env{}, err
	}
	return module.Env{Cluster: c, Release: rel, FilesDir: f.c.FilesDir}, nil
}

// ReadPasswords returns the passwords of a cluster's registries by name.
func ReadPasswords(c *v1alpha1.Cluster) (map[string]secret.String, error) {
	var list diag.List
	out := make(map[string]secret.String, len(c.Spec.Registry.Auths))
	for i, a := range c.Spec.Registry.Auths {
		if a.PasswordFrom == nil {
			continue
		}
		password, err := secret.ResolveSource(*a.PasswordFrom)
		if err != nil {
			list = append(list,
				diag.Refuse(idSecretUnreadable, fmt.Sprintf("cannot read the password of registry %s: %v", a.Registry, err),
					"restore the file or variable that is set in passwordFrom")...)
			list[len(list)-1].Path = fmt.Sprintf("spec.registry.auths[%d].passwordFrom", i)
		}
		out[a.Registry] = password
	}
	return out, list.Err()
}

// RegistryOf returns this machine's settings for bundle and chart registries: the same as
// on hosts.
func RegistryOf(env module.Env) bundle.Registry {
	r := env.Cluster.Spec.Registry
	return bundle.Registry{Plain: r.Insecure, Logins: env.RegistryLogins(), Mirrors: r.Mirrors}
}
