// Package filesdir keeps clusters whose files are in a directory that exists only for one operation. The
// records have names relative to the directory, so that a later operation can use another one.
package filesdir

import (
	"context"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
)

// New returns a backend for clusters with the file names of dir, whose records have relative names.
// dir is absolute.
func New(b records.Backend, dir string) records.Backend {
	out := backend{b, dir}
	if limited, ok := b.(records.Retainer); ok {
		return struct {
			backend
			records.Retainer
		}{out, limited}
	}
	return out
}

type backend struct {
	records.Backend
	dir string
}

// Clusters returns the store of specs, their cluster files and the latest status.
func (b backend) Clusters() records.Clusters { return clusters{b.Backend.Clusters(), b.dir} }

// Operations returns the store of operations and their plans.
func (b backend) Operations() records.Operations { return operations{b.Backend.Operations(), b.dir} }

type clusters struct {
	records.Clusters
	dir string
}

// Load returns the saved spec of a cluster with its latest status, or records.ErrNotFound.
func (c clusters) Load(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	return withFiles(c.dir)(c.Clusters.Load(ctx, name))
}

// Save saves a spec and its cluster file.
func (c clusters) Save(ctx context.Context, cluster *v1alpha1.Cluster, source *records.Source) error {
	return c.Clusters.Save(ctx, WithoutDir(cluster, c.dir), source)
}

type operations struct {
	records.Operations
	dir string
}

// LoadPlannedCluster returns the cluster description in the plan of an operation.
func (o operations) LoadPlannedCluster(ctx context.Context, id string) (*v1alpha1.Cluster, error) {
	return withFiles(o.dir)(o.Operations.LoadPlannedCluster(ctx, id))
}

// WithoutDir returns a copy of a cluster with the names relative to dir.
func WithoutDir(c *v1alpha1.Cluster, dir string) *v1alpha1.Cluster {
	c = c.DeepCopy()
	spec.MakePathsRelative(c, dir)
	return c
}

// withFiles returns a function that makes the names in a cluster paths in dir.
func withFiles(dir string) func(*v1alpha1.Cluster, error) (*v1alpha1.Cluster, error) {
	return func(c *v1alpha1.Cluster, err error) (*v1alpha1.Cluster, error) {
		if err != nil {
			return nil, err
		}
		return c, spec.MakePathsAbsolute(c, spec.Paths{Dir: dir, Home: dir})
	}
}
