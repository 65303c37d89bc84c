package store

import (
	"errors"
	"fmt"
	"io/fs"
)

// Backups is the directory of a cluster's backup sets. It is beside the records:
// what is in it outlives the cluster.
func (s *Store) Backups(cluster string) (string, error) {
	if err := checkName(cluster); err != nil {
		return "", fmt.Errorf("finding backups: %w", err)
	}
	return s.path("backups", cluster), nil
}

// MakeBackups makes that directory, and answers it.
func (s *Store) MakeBackups(cluster string) (string, error) {
	dir, err := s.Backups(cluster)
	if err != nil {
		return "", err
	}
	if err := s.mkdir(dir); err != nil {
		return "", fmt.Errorf("making the directory of backups: %w", err)
	}
	return dir, nil
}

// BackedUp are the clusters of which there are backups, sorted; most are on
// record.
func (s *Store) BackedUp() (names []string, err error) {
	entries, err := s.readDir(s.path("backups"))
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

// Own gives a file that was made beside the store, but for its user, to the
// records' owner.
func (s *Store) Own(path string) error {
	return s.owner.Give(path)
}
