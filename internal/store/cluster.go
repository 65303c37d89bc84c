package store

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/spec"
)

func (s *Store) clusterPath(name string, elem ...string) string {
	return s.path(append([]string{"clusters", name}, elem...)...)
}

// Cluster answers the recorded spec of a cluster with its latest status;
// ErrNotFound if there is none.
func (s *Store) Cluster(name string) (*v1alpha1.Cluster, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("reading cluster: %w", err)
	}
	c := new(v1alpha1.Cluster)
	path := s.clusterPath(name, "cluster.json")
	if err := s.readJSON(path, c); err != nil {
		return nil, fmt.Errorf("reading cluster %s: %w", name, err)
	}
	wrong := spec.Whole(c)
	switch {
	case c.Name != name:
		wrong = fmt.Errorf("it is of a cluster called %q", c.Name)
	case len(c.Spec.Hosts) == 0:
		wrong = errors.New("the cluster in it has no hosts")
	}
	if wrong != nil {
		return nil, fmt.Errorf("reading cluster %s: %w", name, damaged(path, wrong))
	}
	spec.Canonical(c) // of a time when records kept the file's spelling
	if err := s.readJSON(s.clusterPath(name, "status.json"), &c.Status); err != nil && !errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("reading the status of cluster %s: %w", name, err)
	}
	return c, nil
}

// A Source is the file of a cluster as the user wrote it.
type Source struct {
	Text []byte
	// Path is where it was, absolute; "" if it was no file.
	Path string
}

// Source answers the file that a cluster was made from; ErrNotFound if it was
// made without one.
func (s *Store) Source(name string) (*Source, error) {
	text, err := s.read(name, "source.yaml")
	if err != nil {
		return nil, err
	}
	path, err := s.read(name, "source.path")
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	return &Source{Text: text, Path: strings.TrimSuffix(string(path), "\n")}, nil
}

// KeepSource keeps a cluster's file as the one that a rollback puts back.
func (s *Store) KeepSource(name string) error {
	text, err := s.read(name, "source.yaml")
	if err == nil || errors.Is(err, ErrNotFound) {
		err = s.put(name, "kept.yaml", text)
	}
	if err != nil {
		return fmt.Errorf("keeping the file of cluster %s: %w", name, err)
	}
	return nil
}

// KeptSource answers what KeepSource kept; ErrNotFound if there was none.
func (s *Store) KeptSource(name string) ([]byte, error) { return s.read(name, "kept.yaml") }

// SaveCluster records a spec, and the file it was read from: nil leaves what is
// recorded, one without text takes it away. The status is not part of it.
func (s *Store) SaveCluster(c *v1alpha1.Cluster, source *Source) error {
	if err := checkName(c.Name); err != nil {
		return fmt.Errorf("recording cluster: %w", err)
	}
	if err := s.mkdir(s.clusterPath(c.Name)); err != nil {
		return fmt.Errorf("recording cluster %s: %w", c.Name, err)
	}
	if source != nil {
		var path []byte
		if source.Path != "" {
			path = []byte(source.Path + "\n")
		}
		if err := errors.Join(s.put(c.Name, "source.yaml", source.Text), s.put(c.Name, "source.path", path)); err != nil {
			return fmt.Errorf("recording the file of cluster %s: %w", c.Name, err)
		}
	}
	recorded := *c
	recorded.Status = v1alpha1.ClusterStatus{}
	if err := s.writeJSON(s.clusterPath(c.Name, "cluster.json"), &recorded); err != nil {
		return fmt.Errorf("recording cluster %s: %w", c.Name, err)
	}
	return nil
}

// SaveStatus records the latest status of a cluster.
func (s *Store) SaveStatus(name string, status v1alpha1.ClusterStatus) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("recording status: %w", err)
	}
	if err := s.mkdir(s.clusterPath(name)); err != nil {
		return fmt.Errorf("recording the status of cluster %s: %w", name, err)
	}
	if err := s.writeJSON(s.clusterPath(name, "status.json"), status); err != nil {
		return fmt.Errorf("recording the status of cluster %s: %w", name, err)
	}
	return nil
}

// Clusters answers the names of the recorded clusters, sorted.
func (s *Store) Clusters() ([]string, error) {
	entries, err := s.readDir(s.path("clusters"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	var names []string
	for _, e := range entries {
		if checkName(e.Name()) != nil {
			continue // a copy that somebody made
		}
		if _, err := s.stat(s.clusterPath(e.Name(), "cluster.json")); err == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// SaveKubeconfig records the admin kubeconfig of a cluster. One that can run
// programs, names files or skips verification is refused: only the fields of
// kubeconfig.Admin are allowed.
func (s *Store) SaveKubeconfig(name string, content []byte) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("recording kubeconfig: %w", err)
	}
	if _, err := kubeconfig.ParseAdmin(content); err != nil {
		return fmt.Errorf("recording the kubeconfig of cluster %s: %w", name, err)
	}
	if err := s.mkdir(s.clusterPath(name)); err != nil {
		return fmt.Errorf("recording the kubeconfig of cluster %s: %w", name, err)
	}
	if err := s.write(s.KubeconfigPath(name), content); err != nil {
		return fmt.Errorf("recording the kubeconfig of cluster %s: %w", name, err)
	}
	return nil
}

// Kubeconfig answers the recorded admin kubeconfig; ErrNotFound if there is
// none.
func (s *Store) Kubeconfig(name string) ([]byte, error) { return s.read(name, "kubeconfig") }

// KubeconfigPath is where the admin kubeconfig is, or would be.
func (s *Store) KubeconfigPath(name string) string { return s.clusterPath(name, "kubeconfig") }

// AnotherKubeconfig writes one next to the recorded one, for a program to read,
// and returns its path. The rules of SaveKubeconfig apply. The caller removes the
// file; one that a crash leaves is removed under the cluster's next lock.
func (s *Store) AnotherKubeconfig(name string, content []byte) (string, error) {
	if err := checkName(name); err != nil {
		return "", fmt.Errorf("writing a kubeconfig: %w", err)
	}
	if _, err := kubeconfig.ParseAdmin(content); err != nil {
		return "", fmt.Errorf("writing a kubeconfig of cluster %s: %w", name, err)
	}
	path, err := s.temp(s.KubeconfigPath(name), content)
	if err != nil {
		return "", fmt.Errorf("writing a kubeconfig of cluster %s: %w", name, err)
	}
	return path, nil
}

// The files of a cluster's own registry: the password that was made for it, and its
// authority.
const (
	RegistryPassword = "registry.password"
	RegistryHashes   = "registry.hashes"
	RegistryCA       = "registry-ca.crt"
	RegistryCAKey    = "registry-ca.key"
)

// BackupKey is the file of the key that signs a cluster's backup sets.
const BackupKey = "backup-signing.key"

// FormerSigners is the file of the public keys whose private halves signed a cluster's
// backup sets here before, one a line.
const FormerSigners = "backup-signers.pub"

// AdoptBackupKey replaces the key that signs a cluster's backup sets, and keeps the public
// half of the one before.
func (s *Store) AdoptBackupKey(name string, key []byte, former string) error {
	list, err := s.Former(name)
	if err == nil && !slices.Contains(list, former) {
		err = s.write(s.clusterPath(name, FormerSigners), []byte(strings.Join(append(list, former), "\n")+"\n"))
	}
	if err == nil { // last: until then the one before counts
		err = s.write(s.clusterPath(name, BackupKey), key)
	}
	if err != nil {
		return fmt.Errorf("keeping the backup signing key of cluster %s: %w", name, err)
	}
	return nil
}

// Former returns the public keys of FormerSigners.
func (s *Store) Former(name string) ([]string, error) {
	text, err := s.read(name, FormerSigners)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}

// Made answers a file of a cluster, and has it be made first if it is not there. It
// is made once: of several who come at the same time, all get the first one's.
func (s *Store) Made(name, file string, content func() ([]byte, error)) ([]byte, error) {
	for range 2 {
		if text, err := s.read(name, file); !errors.Is(err, ErrNotFound) {
			return text, err
		}
		text, err := content()
		if err != nil {
			return nil, err
		}
		if err := s.mkdir(s.clusterPath(name)); err != nil {
			return nil, fmt.Errorf("keeping %s of cluster %s: %w", file, name, err)
		}
		if err := s.create(s.clusterPath(name, file), text); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("keeping %s of cluster %s: %w", file, name, err)
		}
	}
	return s.read(name, file)
}

// Kept returns a file of a cluster that Keep has written, and nothing if there is none.
func (s *Store) Kept(name, file string) ([]byte, error) {
	text, err := s.read(name, file)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return text, err
}

// Keep writes a file of a cluster.
func (s *Store) Keep(name, file string, content []byte) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("keeping %s: %w", file, err)
	}
	err := s.mkdir(s.clusterPath(name))
	if err == nil {
		err = s.put(name, file, content)
	}
	if err != nil {
		return fmt.Errorf("keeping %s of cluster %s: %w", file, name, err)
	}
	return nil
}

// FilePath is where a file of a cluster is, or would be.
func (s *Store) FilePath(name, file string) string { return s.clusterPath(name, file) }

// RemoveCluster forgets a cluster, and the choice of it as the default. Its
// operations stay. The caller holds the cluster's lock, which stays good until
// it is released.
func (s *Store) RemoveCluster(name string) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("forgetting cluster: %w", err)
	}
	// The record goes first: after a crash in between the cluster is gone
	// from the list, and what is left of it is overwritten by the next.
	err := s.remove(s.clusterPath(name, "cluster.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forgetting cluster %s: %w", name, err)
	}
	if err := s.removeAll(s.clusterPath(name)); err != nil {
		return fmt.Errorf("forgetting cluster %s: %w", name, err)
	}
	if d, err := s.Default(); err == nil && d == name {
		if err := s.SetDefault(""); err != nil {
			return fmt.Errorf("forgetting cluster %s: %w", name, err)
		}
	}
	if err := s.syncDir(s.path("clusters")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// put writes a file of a cluster; without content there is none.
func (s *Store) put(name, file string, content []byte) error {
	if len(content) > 0 {
		return s.write(s.clusterPath(name, file), content)
	}
	if err := s.remove(s.clusterPath(name, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// read answers a file of a cluster.
func (s *Store) read(name, file string) ([]byte, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	b, err := s.readFile(s.clusterPath(name, file))
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s of cluster %s: %w", file, name, err)
	}
	return b, nil
}
