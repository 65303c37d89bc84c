package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"slipway.dev/slipway/internal/records"
)

// clusterFiles is the store of generated passwords and keys of clusters.
type clusterFiles struct{ *directory }

// LoadOrCreate returns a file of a cluster, and creates it if it does not exist. It is created
// once: concurrent callers all get the first content.
func (s clusterFiles) LoadOrCreate(_ context.Context, name, file string, content func() ([]byte, error)) ([]byte, error) {
	for range 2 {
		if text, err := s.readClusterFile(name, file); !errors.Is(err, records.ErrNotFound) {
			return text, err
		}
		text, err := content()
		if err != nil {
			return nil, err
		}
		if err := s.makeDir(s.clusterPath(name)); err != nil {
			return nil, fmt.Errorf("saving %s of cluster %s: %w", file, name, err)
		}
		if err := s.createFile(s.clusterPath(name, file), text); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("saving %s of cluster %s: %w", file, name, err)
		}
	}
	return s.readClusterFile(name, file)
}

// Load returns a file of a cluster, nil if it does not exist.
func (s clusterFiles) Load(_ context.Context, name, file string) ([]byte, error) {
	text, err := s.readClusterFile(name, file)
	if errors.Is(err, records.ErrNotFound) {
		return nil, nil
	}
	return text, err
}

// Save writes a file of a cluster.
func (s clusterFiles) Save(_ context.Context, name, file string, content []byte) error {
	if err := records.CheckName(name); err != nil {
		return fmt.Errorf("saving %s: %w", file, err)
	}
	err := s.makeDir(s.clusterPath(name))
	if err == nil {
		err = s.putFile(name, file, content)
	}
	if err != nil {
		return fmt.Errorf("saving %s of cluster %s: %w", file, name, err)
	}
	return nil
}

// Location returns the path of a file of a cluster, which may not exist.
func (s clusterFiles) Location(name, file string) string { return s.clusterPath(name, file) }
