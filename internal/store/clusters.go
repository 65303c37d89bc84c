package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/status"
)

// clusters is the store of specs, their cluster files and the latest status.
type clusters struct{ *directory }

// Load returns the saved spec of a cluster with its latest status, or ErrNotFound.
func (s clusters) Load(_ context.Context, name string) (*v1alpha1.Cluster, error) {
	if err := records.CheckName(name); err != nil {
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
	if err := s.readJSON(s.clusterPath(name, "status.json"), &c.Status); err != nil && !errors.Is(err, records.ErrNotFound) {
		return nil, fmt.Errorf("reading the status of cluster %s: %w", name, err)
	}
	return c, nil
}

// LoadSource returns the cluster file that a cluster was made from, or ErrNotFound if it was
// made without one.
func (s clusters) LoadSource(_ context.Context, name string) (*records.Source, error) {
	text, err := s.readClusterFile(name, "source.yaml")
	if err != nil {
		return nil, err
	}
	path, err := s.readClusterFile(name, "source.path")
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return nil, err
	}
	return &records.Source{Text: text, Path: strings.TrimSuffix(string(path), "\n")}, nil
}

// KeepSource keeps the current cluster file for a rollback.
func (s clusters) KeepSource(_ context.Context, name string) error {
	text, err := s.readClusterFile(name, "source.yaml")
	if err == nil || errors.Is(err, records.ErrNotFound) {
		err = s.putFile(name, "kept.yaml", text)
	}
	if err != nil {
		return fmt.Errorf("saving the file of cluster %s for a rollback: %w", name, err)
	}
	return nil
}

// LoadKeptSource returns the file that KeepSource kept, or ErrNotFound.
func (s clusters) LoadKeptSource(_ context.Context, name string) ([]byte, error) {
	return s.readClusterFile(name, "kept.yaml")
}

// Save saves a spec and its cluster file. A nil source keeps the saved file, and a
// source without text removes it. The status is not saved.
func (s clusters) Save(_ context.Context, c *v1alpha1.Cluster, source *records.Source) error {
	if err := records.CheckName(c.Name); err != nil {
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
func (s clusters) SaveStatus(_ context.Context, name string, status v1alpha1.ClusterStatus) error {
	if err := records.CheckName(name); err != nil {
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

// SaveNodes saves all nodes of a cluster whose status lists only some. The list is saved before
// that status.
func (s clusters) SaveNodes(_ context.Context, name string, nodes []v1alpha1.NodeStatus) error {
	if err := records.CheckName(name); err != nil {
		return fmt.Errorf("saving nodes: %w", err)
	}
	err := s.makeDir(s.clusterPath(name))
	if err == nil {
		err = s.writeJSON(s.clusterPath(name, "nodes.json"), nodes)
	}
	if err != nil {
		return fmt.Errorf("saving the nodes of cluster %s: %w", name, err)
	}
	return nil
}

// LoadNodes returns all nodes of a saved cluster when they were last seen. It uses the saved list
// only if the status is not complete: an earlier list can exist.
func (s clusters) LoadNodes(_ context.Context, c *v1alpha1.Cluster) ([]v1alpha1.NodeStatus, error) {
	if status.ListsAllNodes(&c.Status) {
		return c.Status.Nodes, nil
	}
	var nodes []v1alpha1.NodeStatus
	switch err := s.readJSON(s.clusterPath(c.Name, "nodes.json"), &nodes); {
	case errors.Is(err, records.ErrNotFound):
		return c.Status.Nodes, nil
	case err != nil:
		return nil, fmt.Errorf("reading the nodes of cluster %s: %w", c.Name, err)
	}
	return nodes, nil
}

// List returns the names of the saved clusters, sorted.
func (s clusters) List(_ context.Context) ([]string, error) {
	entries, err := s.readDir(s.joinHome("clusters"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	var names []string
	for _, e := range entries {
		if records.CheckName(e.Name()) != nil || !e.IsDir() && e.Type() != fs.ModeSymlink {
			continue // for example a manual copy
		}
		// A record that cannot be read is in the list: its cluster exists, and the error is shown with it.
		if _, err := s.statFile(s.clusterPath(e.Name(), "cluster.json")); !errors.Is(err, fs.ErrNotExist) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Remove removes a cluster, and resets the default cluster if it is this one. Its
// operations are kept. The caller holds the cluster's lock, which is valid until it is
// released.
func (s clusters) Remove(_ context.Context, name string) error {
	if err := records.CheckName(name); err != nil {
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
	if d, err := Preferences(s).DefaultCluster(); err == nil && d == name {
		if err := Preferences(s).SetDefaultCluster(""); err != nil {
			return fmt.Errorf("removing cluster %s: %w", name, err)
		}
	}
	if err := s.syncDir(s.joinHome("clusters")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
