package store

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"slipway.dev/slipway/internal/records"
)

// Preferences is the store of selections of the user on this machine: the default cluster, and
// the kubeconfigs into which kubeconfigs of clusters were merged.
type Preferences struct{ *directory }

// Preferences returns the store of selections of the user on this machine.
func (s *Store) Preferences() Preferences { return Preferences{s.directory} }

// DefaultCluster returns the cluster that SetDefaultCluster selected, or "".
func (s Preferences) DefaultCluster() (string, error) {
	file := s.joinHome("default")
	b, err := s.readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	name := strings.TrimSpace(string(b))
	if err == nil && name != "" {
		err = records.CheckName(name)
	}
	if err != nil {
		return "", fmt.Errorf("reading the default cluster: %w", damagedFileError(file, err))
	}
	return name, nil
}

// SetDefaultCluster selects the cluster for commands that do not name one; "" removes the
// selection.
func (s Preferences) SetDefaultCluster(name string) error {
	if name == "" {
		if err := s.removeFile(s.joinHome("default")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := records.CheckName(name); err != nil {
		return err
	}
	return s.writeFile(s.joinHome("default"), []byte(name+"\n"))
}
