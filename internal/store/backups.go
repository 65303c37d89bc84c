package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/records"
)

// backups is the store of backup sets and the keys that sign them.
type backups struct{ *directory }

// Dir returns the directory of a cluster's backup sets. The sets outlive the cluster.
func (s backups) Dir(cluster string) (string, error) {
	if err := records.CheckName(cluster); err != nil {
		return "", fmt.Errorf("finding backups: %w", err)
	}
	return s.joinHome("backups", cluster), nil
}

// MakeDir creates the directory of a cluster's backup sets and returns its path.
func (s backups) MakeDir(cluster string) (string, error) {
	dir, err := s.Dir(cluster)
	if err != nil {
		return "", err
	}
	if err := s.makeDir(dir); err != nil {
		return "", fmt.Errorf("creating the backup directory: %w", err)
	}
	return dir, nil
}

// ListClusters returns the names of the clusters that have backups, sorted. Some of them may
// no longer be saved.
func (s backups) ListClusters(_ context.Context) (names []string, err error) {
	entries, err := s.readDir(s.joinHome("backups"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.IsDir() && records.CheckName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// AdoptKey replaces the key that signs a cluster's backup sets, and keeps the public
// key of the former one.
func (s backups) AdoptKey(ctx context.Context, name string, key []byte, former string) error {
	list, err := s.LoadFormerSigners(ctx, name)
	if err == nil && !slices.Contains(list, former) {
		err = s.writeFile(s.clusterPath(name, records.FormerSigners), []byte(strings.Join(append(list, former), "\n")+"\n"))
	}
	if err == nil { // last, because the former key counts until then
		err = s.writeFile(s.clusterPath(name, records.BackupKey), key)
	}
	if err != nil {
		return fmt.Errorf("saving the backup signing key of cluster %s: %w", name, err)
	}
	return nil
}

// LoadFormerSigners returns the public keys of FormerSigners.
func (s backups) LoadFormerSigners(_ context.Context, name string) ([]string, error) {
	text, err := s.readClusterFile(name, records.FormerSigners)
	if errors.Is(err, records.ErrNotFound) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}
