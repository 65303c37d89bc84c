package store

import (
	"errors"
	"fmt"
	"io/fs"
)

// BackupDir returns the directory of a cluster's backup sets. The sets outlive the
// cluster.
func (s *Store) BackupDir(cluster string) (string, error) {
	if err := checkName(cluster); err != nil {
		return "", fmt.Errorf("finding backups: %w", err)
	}
	return s.joinHome("backups", cluster), nil
}

// MakeBackups creates that directory and returns its path.
func (s *Store) MakeBackups(cluster string) (string, error) {
	dir, err := s.BackupDir(cluster)
	if err != nil {
		return "", err
	}
	if err := s.makeDir(dir); err != nil {
		return "", fmt.Errorf("creating the backup directory: %w", err)
	}
	return dir, nil
}

// BackedUp returns the names of the clusters that have backups, sorted. Some of them may
// no longer be saved.
func (s *Store) BackedUp() (names []string, err error) {
	entries, err := s.readDir(s.joinHome("backups"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.IsDir() && checkName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// ChownToOwner makes the owner of the store the owner of a file outside of it.
func (s *Store) ChownToOwner(path string) error {
	return s.owner.GiveFiles(path)
}
