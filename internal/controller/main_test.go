// The fake servers are reached through a loopback device: ML-KEM would take a third of the
// time of their handshakes.
//
//go:debug tlsmlkem=0
package controller

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/admission"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/hostclaims"
	"slipway.dev/slipway/internal/server/controlplane"
	"slipway.dev/slipway/internal/server/controlplane/testserver"
	"slipway.dev/slipway/internal/testutil/memdir"
)

// server is the API server of all tests.
var server *testserver.Server

// claims has the hosts of all Clusters, for the admission of others.
var claims = hostclaims.NewIndex(time.Now)

// unchecked has the namespaces whose deletion is not checked by admission, as by a server without it.
var unchecked sync.Map

// listClusters returns the Clusters of a namespace for admission.
func listClusters(ctx context.Context, namespace string) ([]v1alpha1.Cluster, error) {
	if _, ok := unchecked.Load(namespace); ok {
		return nil, nil
	}
	return server.ListClusters(ctx, namespace)
}

// built is the cache with the bundles that tests install.
var built struct {
	sync.Once
	cache string
}

// older is a version that can be upgraded from.
const older = "v1.36.4"

// parallelTests is the number of tests that run at the same time.
const parallelTests = "6"

func TestMain(m *testing.M) {
	if code, ran := runReplica(); ran {
		os.Exit(code)
	}
	dir, err := memdir.Use()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built.cache = filepath.Join(dir, "cache")
	flag.Parse()
	if err := flag.Set("test.parallel", parallelTests); err != nil { // most of the time they wait
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := testserver.Run(context.Background(), checkedRun{m}, &server, func(c *controlplane.Config) {
		c.Admission = &admission.Checker{Claims: claims, ListClusters: listClusters, DefaultVersion: older}
	})
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// bundleCache returns a cache with the bundles of two versions.
func bundleCache(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		for _, version := range []string{"", older} {
			var more []string
			if version != "" {
				more = []string{version}
			}
			_, err := bundle.Build(t.Context(), bundle.BuildOptions{
				Kubernetes: version, Arches: []string{"amd64"}, Source: bundle.Upstream, Cache: built.cache,
				Releases: bundletest.LoadCatalogue(t), Upstream: bundletest.NewSite(t, more...).Options(),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	return built.cache
}
