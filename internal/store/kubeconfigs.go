package store

import (
	"fmt"

	"slipway.dev/slipway/internal/kubeconfig"
)

// Kubeconfigs is the store of admin kubeconfigs, and of the paths of kubeconfigs into which
// they were merged.
type Kubeconfigs struct{ *directory }

// Save saves the admin kubeconfig of a cluster. It refuses a kubeconfig that can
// run programs, names files or skips verification: only the fields of kubeconfig.Admin
// are allowed.
func (s Kubeconfigs) Save(name string, content []byte) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("saving kubeconfig: %w", err)
	}
	if _, err := kubeconfig.ParseAdmin(content); err != nil {
		return fmt.Errorf("saving the kubeconfig of cluster %s: %w", name, err)
	}
	if err := s.makeDir(s.clusterPath(name)); err != nil {
		return fmt.Errorf("saving the kubeconfig of cluster %s: %w", name, err)
	}
	if err := s.writeFile(s.Path(name), content); err != nil {
		return fmt.Errorf("saving the kubeconfig of cluster %s: %w", name, err)
	}
	return nil
}

// Load returns the saved admin kubeconfig, or ErrNotFound.
func (s Kubeconfigs) Load(name string) ([]byte, error) {
	return s.readClusterFile(name, "kubeconfig")
}

// Path returns the path of the admin kubeconfig, which may not exist.
func (s Kubeconfigs) Path(name string) string { return s.clusterPath(name, "kubeconfig") }

// WriteAnother writes a kubeconfig next to the saved one, for a program to read, and
// returns its path. The rules of Save apply. The caller removes the file. After
// a crash, the cluster's next lock removes it.
func (s Kubeconfigs) WriteAnother(name string, content []byte) (string, error) {
	if err := checkName(name); err != nil {
		return "", fmt.Errorf("writing a kubeconfig: %w", err)
	}
	if _, err := kubeconfig.ParseAdmin(content); err != nil {
		return "", fmt.Errorf("writing a kubeconfig of cluster %s: %w", name, err)
	}
	path, err := s.writeTemp(s.Path(name), content)
	if err != nil {
		return "", fmt.Errorf("writing a kubeconfig of cluster %s: %w", name, err)
	}
	return path, nil
}
