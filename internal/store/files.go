package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/records"
)

// files are the files of the store itself: its directory is private.
type files struct{ *directory }

// Files returns the files of the store. It creates an empty file for host keys, so that the
// file belongs to the owner of the store when others append to it. Commands that only read work
// without this file; the code that adds a key reports why it cannot.
func (s *Store) Files(context.Context) (records.Files, error) {
	f := files{s.directory}
	if _, err := os.Lstat(f.KnownHosts()); errors.Is(err, fs.ErrNotExist) {
		_ = s.createFile(f.KnownHosts(), nil)
	}
	return f, nil
}

// KnownHosts returns the path of the file with host keys.
func (s files) KnownHosts() string { return s.joinHome("known_hosts") }

// Kubeconfig returns the path of the saved admin kubeconfig if content is saved. Otherwise it
// writes content next to it. After a crash, the cluster's next lock removes this file.
func (s files) Kubeconfig(ctx context.Context, name string, content []byte) (path string, release func(), err error) {
	saved := kubeconfigs(s)
	if text, err := saved.Load(ctx, name); err == nil && bytes.Equal(text, content) {
		return saved.Location(name), func() {}, nil
	}
	if err := records.CheckName(name); err != nil {
		return "", nil, fmt.Errorf("writing a kubeconfig: %w", err)
	}
	_, err = kubeconfig.ParseAdmin(content)
	if err == nil {
		path, err = s.writeTemp(saved.Location(name), content)
	}
	if err != nil {
		return "", nil, fmt.Errorf("writing a kubeconfig of cluster %s: %w", name, err)
	}
	return path, func() { _ = s.removeFile(path) }, nil
}

// ClusterFile returns the path of a file of a cluster.
func (s files) ClusterFile(_ context.Context, name, file string) (string, error) {
	if err := records.CheckName(name); err != nil {
		return "", fmt.Errorf("finding %s: %w", file, err)
	}
	return s.clusterPath(name, file), nil
}

// TempDir returns the directory of the store.
func (s files) TempDir() string { return s.home }

// Close does nothing: the files belong to the store.
func (s files) Close() error { return nil }
