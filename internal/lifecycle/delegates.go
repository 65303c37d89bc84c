package lifecycle

import (
	"path/filepath"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/hostexec"
	"slipway.dev/slipway/internal/store"
)

// Types of hostexec that front ends use.
type (
	Target     = hostexec.Target
	HostResult = hostexec.HostResult
	Work       = hostexec.Work
	Program    = hostexec.Program
	Copy       = hostexec.Copy
)

// savedClusters are the saved clusters, with errors for front ends.
type savedClusters struct{ *store.Store }

func (s savedClusters) Cluster(name string) (*v1alpha1.Cluster, error) {
	return found(s.Store.Cluster(name))
}

// dialer returns the dialer for queries and work outside of operations.
func (s *service) dialer() hostconn.Dialer {
	return hostconn.Dialer{Connect: s.Connect, KnownHosts: filepath.Join(s.Store.Home(), "known_hosts"), Home: s.Home, Log: s.Log}
}

// delegate sets up the parts of the service that are separate packages.
func (s *service) delegate() {
	s.Executor = hostexec.New(hostexec.Config{
		Clusters: savedClusters{s.Store}, Dialer: s.dialer(), Resolve: s.Resolve, Shell: s.Shell, Warn: s.warn,
	})
}
