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
	return s.joinHome(append([]string{"clusters", name}, elem...)...)
}

// LoadCluster returns the saved spec of a cluster with its latest status, or ErrNotFound.
func (s *Store) LoadCluster(name string) (*v1alpha1.Cluster, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("reading cluster: %w", err)
	}
	c := new(v1alpha1.Cluster)
	path := s.clusterPath(name, "cluster.json")
	if err := s.readJSON(path, c); err != nil {
		return nil, fmt.Errorf("reading cluster %s: %w", name, err)
	}
	wrong := spec.CheckSavedState(c)
	switch {
	case c.Name != name:
		wrong = fmt.Errorf("it belongs to cluster %q", c.Name)
	case len(c.Spec.Hosts) == 0:
		wrong = errors.New("its cluster has no hosts")
	}
	if wrong != nil {
		return nil, fmt.Errorf("reading cluster %s: %w", name, damagedFileError(path, wrong))
	}
	spec.CanonicalizeAddresses(c) // earlier versions saved the spelling of the cluster file
	if err := s.readJSON(s.clusterPath(name, "status.json"), &c.Status); err != nil && !errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("reading the status of cluster %s: %w", name, err)
	}
	return c, nil
}

// A Source is a cluster file as the user wrote it.
type Source struct {
	Text []byte
	// Path is its absolute path, "" if it was not a file.
	Path string
}

// LoadSource returns the cluster file that a cluster was made from, or ErrNotFound if it was
// made without one.
func (s *Store) LoadSource(name string) (*Source, error) {
	text, err := s.readClusterFile(name, "source.yaml")
	if err != nil {
		return nil, err
	}
	path, err := s.readClusterFile(name, "source.path")
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	return &Source{Text: text, Path: strings.TrimSuffix(string(path), "\n")}, nil
}

// KeepSource keeps the current cluster file for a rollback.
func (s *Store) KeepSource(name string) error {
	text, err := s.readClusterFile(name, "source.yaml")
	if err == nil || errors.Is(err, ErrNotFound) {
		err = s.putFile(name, "kept.yaml", text)
	}
	if err != nil {
		return fmt.Errorf("saving the file of cluster %s for a rollback: %w", name, err)
	}
	return nil
}

// KeptSource returns the file that KeepSource kept, or ErrNotFound.
func (s *Store) KeptSource(name string) ([]byte, error) { return s.readClusterFile(name, "kept.yaml") }

// SaveCluster saves a spec and its cluster file. A nil source keeps the saved file, and a
// source without text removes it. The status is not saved.
func (s *Store) SaveCluster(c *v1alpha1.Cluster, source *Source) error {
	if err := checkName(c.Name); err != nil {
		return fmt.Errorf("saving cluster: %w", err)
	}
	if err := s.makeDir(s.clusterPath(c.Name)); err != nil {
		return fmt.Errorf("saving cluster %s: %w", c.Name, err)
	}
	if source != nil {
		var path []byte
		if source.Path != "" {
			path = []byte(source.Path + "\n")
		}
		if err := errors.Join(s.putFile(c.Name, "source.yaml", source.Text), s.putFile(c.Name, "source.path", path)); err != nil {
			return fmt.Errorf("saving the file of cluster %s: %w", c.Name, err)
		}
	}
	recorded := *c
	recorded.Status = v1alpha1.ClusterStatus{}
	if err := s.writeJSON(s.clusterPath(c.Name, "cluster.json"), &recorded); err != nil {
		return fmt.Errorf("saving cluster %s: %w", c.Name, err)
	}
	return nil
}

// SaveStatus saves the latest status of a cluster.
func (s *Store) SaveStatus(name string, status v1alpha1.ClusterStatus) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("saving status: %w", err)
	}
	if err := s.makeDir(s.clusterPath(name)); err != nil {
		return fmt.Errorf("saving the status of cluster %s: %w", name, err)
	}
	if err := s.writeJSON(s.clusterPath(name, "status.json"), status); err != nil {
		return fmt.Errorf("saving the status of cluster %s: %w", name, err)
	}
	return nil
}

// ListClusters returns the names of the saved clusters, sorted.
func (s *Store) ListClusters() ([]string, error) {
	entries, err := s.readDir(s.joinHome("clusters"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	var names []string
	for _, e := range entries {
		if checkName(e.Name()) != nil {
			continue // for example a manual copy
		}
		if _, err := s.statFile(s.clusterPath(e.Name(), "cluster.json")); err == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// SaveKubeconfig saves the admin kubeconfig of a cluster. It refuses a kubeconfig that can
// run programs, names files or skips verification: only the fields of kubeconfig.Admin
// are allowed.
func (s *Store) SaveKubeconfig(name string, content []byte) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("saving kubeconfig: %w", err)
	}
	if _, err := kubeconfig.ParseAdmin(content); err != nil {
		return fmt.Errorf("saving the kubeconfig of cluster %s: %w", name, err)
	}
	if err := s.makeDir(s.clusterPath(name)); err != nil {
		return fmt.Errorf("saving the kubeconfig of cluster %s: %w", name, err)
	}
	if err := s.writeFile(s.KubeconfigPath(name), content); err != nil {
		return fmt.Errorf("saving the kubeconfig of cluster %s: %w", name, err)
	}
	return nil
}

// LoadKubeconfig returns the saved admin kubeconfig, or ErrNotFound.
func (s *Store) LoadKubeconfig(name string) ([]byte, error) {
	return s.readClusterFile(name, "kubeconfig")
}

// KubeconfigPath returns the path of the admin kubeconfig, which may not exist.
func (s *Store) KubeconfigPath(name string) string { return s.clusterPath(name, "kubeconfig") }

// AnotherKubeconfig writes a kubeconfig next to the saved one, for a program to read, and
// returns its path. The rules of SaveKubeconfig apply. The caller removes the file. After
// a crash, the cluster's next lock removes it.
func (s *Store) AnotherKubeconfig(name string, content []byte) (string, error) {
	if err := checkName(name); err != nil {
		return "", fmt.Errorf("writing a kubeconfig: %w", err)
	}
	if _, err := kubeconfig.ParseAdmin(content); err != nil {
		return "", fmt.Errorf("writing a kubeconfig of cluster %s: %w", name, err)
	}
	path, err := s.writeTemp(s.KubeconfigPath(name), content)
	if err != nil {
		return "", fmt.Errorf("writing a kubeconfig of cluster %s: %w", name, err)
	}
	return path, nil
}

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

// AdoptBackupKey replaces the key that signs a cluster's backup sets, and keeps the public
// key of the former one.
func (s *Store) AdoptBackupKey(name string, key []byte, former string) error {
	list, err := s.LoadFormerSigners(name)
	if err == nil && !slices.Contains(list, former) {
		err = s.writeFile(s.clusterPath(name, FormerSigners), []byte(strings.Join(append(list, former), "\n")+"\n"))
	}
	if err == nil { // last, because the former key counts until then
		err = s.writeFile(s.clusterPath(name, BackupKey), key)
	}
	if err != nil {
		return fmt.Errorf("saving the backup signing key of cluster %s: %w", name, err)
	}
	return nil
}

// LoadFormerSigners returns the public keys of FormerSigners.
func (s *Store) LoadFormerSigners(name string) ([]string, error) {
	text, err := s.readClusterFile(name, FormerSigners)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}

// LoadOrCreate returns a file of a cluster, and creates it if it does not exist. It is created
// once: concurrent callers all get the first content.
func (s *Store) LoadOrCreate(name, file string, content func() ([]byte, error)) ([]byte, error) {
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

// LoadFile returns a file of a cluster that Keep has written, nil if there is none.
func (s *Store) LoadFile(name, file string) ([]byte, error) {
	text, err := s.readClusterFile(name, file)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return text, err
}

// SaveFile writes a file of a cluster.
func (s *Store) SaveFile(name, file string, content []byte) error {
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

// FilePath returns the path of a file of a cluster, which may not exist.
func (s *Store) FilePath(name, file string) string { return s.clusterPath(name, file) }

// RemoveCluster removes a cluster, and resets the default cluster if it is this one. Its
// operations are kept. The caller holds the cluster's lock, which is valid until it is
// released.
func (s *Store) RemoveCluster(name string) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("removing cluster: %w", err)
	}
	// cluster.json is removed first: after a crash in between, the cluster is no longer
	// listed, and a new cluster overwrites its remaining files.
	err := s.removeFile(s.clusterPath(name, "cluster.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing cluster %s: %w", name, err)
	}
	if err := s.removeAll(s.clusterPath(name)); err != nil {
		return fmt.Errorf("removing cluster %s: %w", name, err)
	}
	if d, err := s.DefaultCluster(); err == nil && d == name {
		if err := s.SetDefault(""); err != nil {
			return fmt.Errorf("removing cluster %s: %w", name, err)
		}
	}
	if err := s.syncDir(s.joinHome("clusters")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// putFile writes a file of a cluster, or removes it if there is no content.
func (s *Store) putFile(name, file string, content []byte) error {
	if len(content) > 0 {
		return s.writeFile(s.clusterPath(name, file), content)
	}
	if err := s.removeFile(s.clusterPath(name, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readClusterFile returns a file of a cluster.
func (s *Store) readClusterFile(name, file string) ([]byte, error) {
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
