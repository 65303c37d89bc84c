package store

import (
	"context"
	"fmt"

	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/records"
)

// kubeconfigs is the store of admin kubeconfigs.
type kubeconfigs struct{ *directory }

// Save saves the admin kubeconfig of a cluster. It refuses a kubeconfig that can
// run programs, names files or skips verification: only the fields of kubeconfig.Admin
// are allowed.
func (s kubeconfigs) Save(_ context.Context, name string, content []byte) error {
	if err := records.CheckName(name); err != nil {
		return fmt.Errorf("saving kubeconfig: %w", err)
	}
	if _, err := kubeconfig.ParseAdmin(content); err != nil {
		return fmt.Errorf("saving the kubeconfig of cluster %s: %w", name, err)
	}
	if err := s.makeDir(s.clusterPath(name)); err != nil {
		return fmt.Errorf("saving the kubeconfig of cluster %s: %w", name, err)
	}
	if err := s.writeFile(s.Location(name), content); err != nil {
		return fmt.Errorf("saving the kubeconfig of cluster %s: %w", name, err)
	}
	return nil
}

// Load returns the saved admin kubeconfig, or ErrNotFound.
func (s kubeconfigs) Load(_ context.Context, name string) ([]byte, error) {
	return s.readClusterFile(name, "kubeconfig")
}

// Location returns the path of the admin kubeconfig, which may not exist.
func (s kubeconfigs) Location(name string) string { return s.clusterPath(name, "kubeconfig") }
