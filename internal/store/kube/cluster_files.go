package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/records"
)

// clusterFiles is the store of generated passwords and keys of clusters.
type clusterFiles struct{ *connection }

// Load returns a file of a cluster, nil if it does not exist.
func (s clusterFiles) Load(ctx context.Context, name, file string) ([]byte, error) {
	text, err := s.loadContent(ctx, "reading "+file, name, ofFile+file)
	if errors.Is(err, records.ErrNotFound) {
		return nil, nil
	}
	return text, err
}

// LoadOrCreate returns a file of a cluster, and creates it if it does not exist. Concurrent callers
// all get the first content.
func (s clusterFiles) LoadOrCreate(ctx context.Context, name, file string, make func() ([]byte, error)) ([]byte, error) {
	if text, err := s.loadContent(ctx, "reading "+file, name, ofFile+file); !errors.Is(err, records.ErrNotFound) {
		return text, err
	}
	text, err := make()
	if err != nil {
		return nil, err
	}
	to, err := s.describeContent(ctx, name, ofFile+file)
	if err == nil {
		text, err = contents(s).create(ctx, to, text)
	}
	if err != nil {
		return nil, fmt.Errorf("saving %s of cluster %s: %w", file, name, err)
	}
	return text, nil
}

// Save writes a file of a cluster. Without content it removes the file.
func (s clusterFiles) Save(ctx context.Context, name, file string, text []byte) error {
	return s.saveContent(ctx, "saving "+file, name, ofFile+file, text)
}

// Location returns the Secret of a file of a cluster.
func (s clusterFiles) Location(name, file string) string { return s.placeOf(name, ofFile+file) }

// kubeconfigs is the store of admin kubeconfigs.
type kubeconfigs struct{ *connection }

// Load returns the saved admin kubeconfig, or records.ErrNotFound.
func (s kubeconfigs) Load(ctx context.Context, name string) ([]byte, error) {
	return s.loadContent(ctx, "reading the kubeconfig", name, ofKubeconfig)
}

// Save saves the admin kubeconfig of a cluster. It allows only the fields of kubeconfig.Admin.
func (s kubeconfigs) Save(ctx context.Context, name string, text []byte) error {
	if _, err := kubeconfig.ParseAdmin(text); err != nil {
		return fmt.Errorf("saving the kubeconfig of cluster %s: %w", name, err)
	}
	return s.saveContent(ctx, "saving the kubeconfig", name, ofKubeconfig, text)
}

// Location returns the Secret of the admin kubeconfig.
func (s kubeconfigs) Location(name string) string { return s.placeOf(name, ofKubeconfig) }

// backups is the store of backup sets, which are files, and the keys that sign them.
type backups struct{ *connection }

// Dir returns the directory of a cluster's backup sets. Clusters of other namespaces have others.
func (s backups) Dir(cluster string) (string, error) {
	if err := records.CheckName(cluster); err != nil {
		return "", fmt.Errorf("finding backups: %w", err)
	}
	return filepath.Join(s.BackupDir, s.Namespace, cluster), nil
}

// MakeDir creates the directory of a cluster's backup sets and returns its path.
func (s backups) MakeDir(cluster string) (string, error) {
	dir, err := s.Dir(cluster)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("creating the backup directory: %w", err)
	}
	return dir, nil
}

// ListClusters returns the names of the clusters that have backups, sorted.
func (s backups) ListClusters(context.Context) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(s.BackupDir, s.Namespace))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.IsDir() && records.CheckName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// AdoptKey replaces the key that signs a cluster's backup sets, and keeps the public key of the
// former one.
func (s backups) AdoptKey(ctx context.Context, name string, key []byte, former string) error {
	list, err := s.LoadFormerSigners(ctx, name)
	files := clusterFiles(s)
	if err == nil && !slices.Contains(list, former) {
		err = files.Save(ctx, name, records.FormerSigners, []byte(strings.Join(append(list, former), "\n")+"\n"))
	}
	if err == nil { // last, because the former key counts until then
		err = files.Save(ctx, name, records.BackupKey, key)
	}
	return err
}

// LoadFormerSigners returns the public keys of records.FormerSigners.
func (s backups) LoadFormerSigners(ctx context.Context, name string) ([]string, error) {
	text, err := clusterFiles(s).Load(ctx, name, records.FormerSigners)
	return strings.Fields(string(text)), err
}
