package lifecycle

import (
	"context"
	"path/filepath"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/access"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/hostexec"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/spec"
)

// Types of hostexec that front ends use.
type (
	Target     = hostexec.Target
	HostResult = hostexec.HostResult
	Work       = hostexec.Work
	Program    = hostexec.Program
	Copy       = hostexec.Copy
)

// A ManifestRequest describes a bundle manifest.
type ManifestRequest = access.ManifestRequest

// savedClusters are the saved clusters, with errors for front ends.
type savedClusters struct{ svc *service }

// Clusters returns the names of the saved clusters.
func (s savedClusters) Clusters() ([]string, error) { return s.svc.Store.Clusters() }

// Cluster returns a saved cluster as it was saved.
func (s savedClusters) Cluster(name string) (*v1alpha1.Cluster, error) {
	return found(s.svc.Store.Cluster(name))
}

// Environment returns the environment for pipelines of a cluster.
func (s savedClusters) Environment(ctx context.Context, c *v1alpha1.Cluster) (module.Env, error) {
	return s.svc.environment(ctx, c)
}

// OpenBundle opens the bundle of a cluster for an architecture. It returns nil if no bundle
// is available.
func (s savedClusters) OpenBundle(ctx context.Context, env module.Env, arch string) (*bundle.Bundle, error) {
	if named := env.Cluster.Spec.Bundle; named != "" && !spec.IsBundlePath(named) { // it may be in one of the cluster's registries
		var err error
		if env.Passwords, err = passwords(env.Cluster); err != nil {
			return nil, err
		}
	}
	src := &source{svc: s.svc, env: env, arches: []string{arch}}
	if _, err := src.Have(ctx); err != nil {
		return nil, err
	}
	return src.opened.Load(), nil
}

// Kubeconfig returns the admin kubeconfig.
func (s *service) Kubeconfig(ctx context.Context, name string, live bool) (conf []byte, warnings diag.List, err error) {
	conf, warnings, err = s.Access.Kubeconfig(ctx, name, live)
	conf, err = found(conf, err)
	return conf, warnings, err
}

// dialer returns the dialer for queries and work outside of operations.
func (s *service) dialer() hostconn.Dialer {
	return hostconn.Dialer{Connect: s.Connect, KnownHosts: filepath.Join(s.Store.Home(), "known_hosts"), Home: s.Home, Log: s.Log}
}

// delegate sets up the parts of the service that are separate packages.
func (s *service) delegate() {
	saved := savedClusters{s}
	s.Executor = hostexec.New(hostexec.Config{
		Clusters: saved, Dialer: s.dialer(), Resolve: s.Resolve, Shell: s.Shell, Warn: s.warn,
	})
	s.Access = access.New(access.Config{
		Store: s.Store, Clusters: saved, Catalogue: s.Catalogue, Cache: s.Cache, Dialer: s.dialer(), DialAPI: s.Dial, Now: s.Now,
	})
}
