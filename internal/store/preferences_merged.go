package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/records"
)

// mergedPrefix begins the names of files that each contain the path of one kubeconfig.
const mergedPrefix = "merged-"

// AddMergedKubeconfig saves that the kubeconfig at an absolute path has entries of a cluster. It
// uses one file for each path, so that concurrent processes do not overwrite each other.
func (s Preferences) AddMergedKubeconfig(name, path string) error {
	if err := records.CheckName(name); err != nil {
		return fmt.Errorf("saving a merged kubeconfig: %w", err)
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("saving a merged kubeconfig of cluster %s: %q is not an absolute path", name, path)
	}
	if _, err := s.readClusterFile(name, "cluster.json"); err != nil {
		return fmt.Errorf("saving a merged kubeconfig: %w", err)
	}
	sum := sha256.Sum256([]byte(path))
	if err := s.writeFile(s.clusterPath(name, mergedPrefix+hex.EncodeToString(sum[:8])), []byte(path)); err != nil {
		return fmt.Errorf("saving a merged kubeconfig of cluster %s: %w", name, err)
	}
	return nil
}

// ListMergedKubeconfigs returns the paths of the kubeconfigs that have entries of a cluster, sorted.
func (s Preferences) ListMergedKubeconfigs(name string) ([]string, error) {
	if err := records.CheckName(name); err != nil {
		return nil, fmt.Errorf("reading merged kubeconfigs: %w", err)
	}
	entries, err := s.readDir(s.clusterPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading merged kubeconfigs of cluster %s: %w", name, err)
	}
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), mergedPrefix) {
			continue
		}
		text, err := s.readClusterFile(name, e.Name())
		if errors.Is(err, records.ErrNotFound) {
			continue // removed in the meantime
		}
		if err != nil {
			return nil, err
		}
		if filepath.IsAbs(string(text)) {
			out = append(out, string(text))
		}
	}
	slices.Sort(out)
	return out, nil
}
