// Package access reaches clusters from this machine: their API addresses, admin kubeconfigs
// and kubectl. With a kubeconfig it also describes clusters that Slipway does not manage.
package access

import (
	"context"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/release"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	idNoKubectl          = "no-kubectl"
	idNoKubeconfig       = "no-kubeconfig"
	idDamaged            = "record-damaged" // as in package store
	idKubeconfigUnusable = "kubeconfig-unusable"
	idClusterUnreadable  = "cluster-unreadable"
	idNotKubeadm         = "not-kubeadm"
	idImageLeftOut       = "image-left-out"
)

// Clusters are the saved clusters.
type Clusters interface {
	// Load returns a cluster, or records.ErrNotFound.
	Load(ctx context.Context, name string) (*v1alpha1.Cluster, error)
	// Environment returns the environment of a cluster.
	Environment(ctx context.Context, c *v1alpha1.Cluster) (module.Env, error)
	// OpenBundle opens the bundle of a cluster for an architecture. It returns nil if no
	// bundle is available.
	OpenBundle(ctx context.Context, env module.Env, arch string) (*bundle.Bundle, error)
}

// A Config configures Access.
type Config struct {
	Records   records.Backend
	Files     records.Files
	Owner     *fileowner.Owner
	Clusters  Clusters
	Catalogue *release.Catalogue
	// Cache is the directory for unpacked programs.
	Cache  string
	Dialer hostconn.Dialer
	// DialAPI opens a connection from this machine to an API; nil uses the network.
	DialAPI kube.DialFunc
	Now     func() time.Time
}

// Access gives access to clusters from this machine.
type Access struct{ c Config }

// New returns the access to clusters.
func New(c Config) *Access { return &Access{c} }
