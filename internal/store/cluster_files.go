package store

import (
	"errors"
	"fmt"
	"io/fs"
)

// ClusterFiles is the store of generated passwords and keys of clusters.
type ClusterFiles struct{ *directory }

// The files of a cluster's registry: its generated password, the hashes of passwords, and
// its CA.
const (
	RegistryPassword = "registry.password"
	RegistryHashes   = "registry.hashes"
	RegistryCA       = "registry-ca.crt"
	RegistryCAKey    = "registry-ca.key"
)

// BackupKey is the file of the key that signs a cluster's backup sets.
const BackupKey = "backup-signing.key"

// FormerSigners is the file of the public keys of former signing keys for a cluster's
// backup sets, one per line.
const FormerSigners = "backup-signers.pub"

// LoadOrCreate returns a file of a cluster, and creates it if it does not exist. It is created
// once: concurrent callers all get the first content.
func (s ClusterFiles) LoadOrCreate(name, file string, content func() ([]byte, error)) ([]byte, error) {
	for range 2 {
		if text, err := s.readClusterFile(name, file); !errors.Is(err, ErrNotFound) {
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
func (s ClusterFiles) Load(name, file string) ([]byte, error) {
	text, err := s.readClusterFile(name, file)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return text, err
}

// Save writes a file of a cluster.
func (s ClusterFiles) Save(name, file string, content []byte) error {
	if err := checkName(name); err != nil {
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

// Path returns the path of a file of a cluster, which may not exist.
func (s ClusterFiles) Path(name, file string) string { return s.clusterPath(name, file) }
