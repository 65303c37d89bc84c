package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/status"
)

// The contents of a cluster.
const (
	ofSpec       = "spec"
	ofSource     = "source"
	ofKept       = "kept"
	ofStatus     = "status"
	ofNodes      = "nodes"
	ofKubeconfig = "kubeconfig"
	ofHolds      = "holds"
	ofFile       = "file." // and the name of the file
)

// clusters is the store of specs, their cluster files and the latest status.
type clusters struct{ *connection }

// clusterContent returns the name of a content of a cluster. No name of a cluster has a dot.
func clusterContent(cluster, of string) string { return "slipway." + cluster + "." + of }

// describeContent returns a content of a cluster with its owner, to save it.
func (c *connection) describeContent(ctx context.Context, cluster, of string) (content, error) {
	out := content{
		name:   clusterContent(cluster, of),
		labels: map[string]string{labelCluster: cluster, labelRecord: of},
	}
	var object v1alpha1.Cluster
	err := c.repeat(ctx, func(ctx context.Context) error {
		return c.own.Get().Namespace(c.Namespace).Resource("clusters").Name(cluster).Do(ctx).Into(&object)
	})
	switch {
	case errors.Is(err, records.ErrNotFound):
		return out, nil
	case err != nil:
		return out, err
	}
	out.owner = &metav1.OwnerReference{APIVersion: v1alpha1.APIVersion, Kind: "Cluster", Name: cluster, UID: object.UID}
	return out, nil
}

// saveContent saves a content of a cluster. doing describes it for errors.
func (c *connection) saveContent(ctx context.Context, doing, cluster, of string, text []byte) error {
	if err := records.CheckName(cluster); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	to, err := c.describeContent(ctx, cluster, of)
	if err == nil {
		err = contents{c}.save(ctx, to, text)
	}
	if err != nil {
		return fmt.Errorf("%s of cluster %s: %w", doing, cluster, err)
	}
	return nil
}

// loadContent returns a content of a cluster, or records.ErrNotFound.
func (c *connection) loadContent(ctx context.Context, doing, cluster, of string) ([]byte, error) {
	if err := records.CheckName(cluster); err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	text, err := contents{c}.load(ctx, clusterContent(cluster, of), nil)
	if err != nil {
		return nil, fmt.Errorf("%s of cluster %s: %w", doing, cluster, err)
	}
	return text, nil
}

// List returns the names of the saved clusters, sorted.
func (s clusters) List(ctx context.Context) ([]string, error) {
	list, err := contents(s).list(ctx, labelRecord+"="+ofSpec)
	if err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	var names []string
	for _, secret := range list {
		names = append(names, secret.Labels[labelCluster])
	}
	slices.Sort(names)
	return names, nil
}

// Load returns the saved spec of a cluster with its latest status, or records.ErrNotFound.
func (s clusters) Load(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	text, err := s.loadContent(ctx, "reading the spec", name, ofSpec)
	if err != nil {
		return nil, err
	}
	c := new(v1alpha1.Cluster)
	wrong := json.Unmarshal(text, c)
	if wrong == nil {
		wrong = spec.CheckSavedState(c)
	}
	switch {
	case wrong != nil:
	case c.Name != name:
		wrong = fmt.Errorf("it belongs to cluster %q", c.Name)
	case len(c.Spec.Hosts) == 0:
		wrong = errors.New("its cluster has no hosts")
	}
	if wrong != nil {
		return nil, fmt.Errorf("reading cluster %s: %w", name, damagedError(s.placeOf(name, ofSpec), wrong))
	}
	spec.CanonicalizeAddresses(c)
	err = contents(s).loadJSON(ctx, clusterContent(name, ofStatus), nil, &c.Status)
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return nil, fmt.Errorf("reading the status of cluster %s: %w", name, err)
	}
	return c, nil
}

// placeOf returns the place of a content of a cluster, for messages.
func (c *connection) placeOf(cluster, of string) string {
	return fmt.Sprintf("Secret %s/%s", c.Namespace, clusterContent(cluster, of))
}

// Save saves a spec and its cluster file. A nil source keeps the saved file, and a source without
// text removes it. The status is not saved.
func (s clusters) Save(ctx context.Context, c *v1alpha1.Cluster, source *records.Source) error {
	if source != nil {
		var text []byte
		if len(source.Text) > 0 {
			var err error
			if text, err = json.Marshal(source); err != nil {
				return fmt.Errorf("encoding the file of cluster %s: %w", c.Name, err)
			}
		}
		if err := s.saveContent(ctx, "saving the file", c.Name, ofSource, text); err != nil {
			return err
		}
	}
	saved := *c
	saved.Status = v1alpha1.ClusterStatus{}
	text, err := json.Marshal(&saved)
	if err != nil {
		return fmt.Errorf("encoding cluster %s: %w", c.Name, err)
	}
	return s.saveContent(ctx, "saving the spec", c.Name, ofSpec, text)
}

// LoadSource returns the cluster file that a cluster was made from, or records.ErrNotFound.
func (s clusters) LoadSource(ctx context.Context, name string) (*records.Source, error) {
	return s.loadSource(ctx, name, ofSource)
}

func (s clusters) loadSource(ctx context.Context, name, of string) (*records.Source, error) {
	text, err := s.loadContent(ctx, "reading the file", name, of)
	if err != nil {
		return nil, err
	}
	source := new(records.Source)
	if err := json.Unmarshal(text, source); err != nil {
		return nil, fmt.Errorf("reading the file of cluster %s: %w", name, damagedError(s.placeOf(name, of), err))
	}
	return source, nil
}

// KeepSource keeps the current cluster file for a rollback.
func (s clusters) KeepSource(ctx context.Context, name string) error {
	text, err := s.loadContent(ctx, "reading the file", name, ofSource)
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return err
	}
	return s.saveContent(ctx, "saving the file for a rollback", name, ofKept, text)
}

// LoadKeptSource returns the file that KeepSource kept, or records.ErrNotFound.
func (s clusters) LoadKeptSource(ctx context.Context, name string) ([]byte, error) {
	source, err := s.loadSource(ctx, name, ofKept)
	if err != nil {
		return nil, err
	}
	return source.Text, nil
}

// SaveStatus saves the latest status of a cluster, and copies it to the Cluster object. The fields
// that operations do not set belong to others.
func (s clusters) SaveStatus(ctx context.Context, name string, status v1alpha1.ClusterStatus) error {
	text, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("encoding the status of cluster %s: %w", name, err)
	}
	if err := s.saveContent(ctx, "saving the status", name, ofStatus, text); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.APIVersion, "kind": "Cluster", "metadata": map[string]any{"name": name}, "status": status,
	})
	if err != nil {
		return fmt.Errorf("encoding the status of cluster %s: %w", name, err)
	}
	err = s.repeat(ctx, func(ctx context.Context) error {
		err := s.own.Get().Namespace(s.Namespace).Resource("clusters").Name(name).Do(ctx).Error()
		if err != nil { // a patch would create the object
			return err
		}
		return s.own.Patch(types.ApplyPatchType).Namespace(s.Namespace).Resource("clusters").Name(name).SubResource("status").
			Param("fieldManager", fieldManager).Param("force", "true").Body(patch).Do(ctx).Error()
	})
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return fmt.Errorf("saving the status of Cluster %s/%s: %w", s.Namespace, name, err)
	}
	return nil
}

// fieldManager owns the fields of a Cluster's status that operations set.
const fieldManager = "slipway-operation"

// SaveNodes saves all nodes of a cluster whose status lists only some.
func (s clusters) SaveNodes(ctx context.Context, name string, nodes []v1alpha1.NodeStatus) error {
	text, err := json.Marshal(nodes)
	if err != nil {
		return fmt.Errorf("encoding the nodes of cluster %s: %w", name, err)
	}
	return s.saveContent(ctx, "saving the nodes", name, ofNodes, text)
}

// LoadNodes returns all nodes of a saved cluster when they were last seen.
func (s clusters) LoadNodes(ctx context.Context, c *v1alpha1.Cluster) ([]v1alpha1.NodeStatus, error) {
	if status.ListsAllNodes(&c.Status) {
		return c.Status.Nodes, nil
	}
	var nodes []v1alpha1.NodeStatus
	switch err := contents(s).loadJSON(ctx, clusterContent(c.Name, ofNodes), nil, &nodes); {
	case errors.Is(err, records.ErrNotFound):
		return c.Status.Nodes, nil
	case err != nil:
		return nil, fmt.Errorf("reading the nodes of cluster %s: %w", c.Name, err)
	}
	return nodes, nil
}

// Remove removes the records of a cluster. Its operations, its backup sets and its Cluster object
// are kept. The spec is removed last: until then the cluster is listed, and Remove can be repeated. The
// status is removed just before it.
func (s clusters) Remove(ctx context.Context, name string) error {
	if err := records.CheckName(name); err != nil {
		return fmt.Errorf("removing cluster: %w", err)
	}
	secrets := contents(s)
	last := []string{clusterContent(name, ofStatus), clusterContent(name, ofSpec)}
	list, err := secrets.list(ctx, labelCluster+"="+name)
	names := map[string]bool{}
	for _, secret := range list { // of a content whose removal was interrupted, only parts exist
		names[firstName(secret)] = true
	}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		if strings.HasPrefix(n, clusterContent(name, "")) && !slices.Contains(last, n) {
			err = errors.Join(err, secrets.remove(ctx, n))
		}
	}
	for _, n := range last {
		if err == nil {
			err = secrets.remove(ctx, n)
		}
	}
	if err != nil {
		return fmt.Errorf("removing cluster %s: %w", name, err)
	}
	return nil
}
