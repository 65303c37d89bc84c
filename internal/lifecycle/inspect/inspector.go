// Package inspect reports the state of clusters: of their nodes, etcd, certificates and
// automatic backups. It changes nothing. Its queries have time limits, so that hosts that do
// not respond delay nothing.
package inspect

import (
	"context"
	"strconv"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/lifecycle/access"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/release"
)

// Clusters are the saved clusters.
type Clusters interface {
	// Cluster returns the saved spec with the latest status.
	Cluster(ctx context.Context, name string) (*v1alpha1.Cluster, error)
	// Operations returns the operations of a cluster, newest first.
	Operations(ctx context.Context, cluster string) ([]v1alpha1.Operation, error)
	// Environment returns the environment of a cluster.
	Environment(ctx context.Context, c *v1alpha1.Cluster) (module.Env, error)
}

// A Config configures an Inspector.
type Config struct {
	Clusters  Clusters
	Records   records.Backend
	Access    *access.Access
	Catalogue *release.Catalogue
	Dialer    hostconn.Dialer
	// DialAPI opens a connection from this machine to an API; nil uses the network.
	DialAPI kube.DialFunc
	Now     func() time.Time
	// SigningKey returns the key with which a cluster's backups are signed, nil if there is
	// none yet.
	SigningKey func(ctx context.Context, cluster string) (*backup.SigningKey, error)
	// CAIDs returns the ids of the cluster's CAs in a kubeconfig.
	CAIDs func(kubeconfig []byte) []string
}

// An Inspector queries clusters.
type Inspector struct {
	// Limits limit the duration of queries.
	Limits Limits
	c      Config
}

// New returns an inspector with the usual limits.
func New(c Config) *Inspector {
	return &Inspector{c: c, Limits: Limits{Total: 25 * time.Second, Host: 12 * time.Second, Through: 10 * time.Second}}
}

// countOf returns a number with its noun, for users.
func countOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
