package recordstest

import (
	"context"
	"errors"
	"fmt"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/status"
)

type clusters struct{ *Process }

func (p clusters) List(ctx context.Context) (names []string, err error) {
	err = p.useFor(ctx, func(m *Memory) error { names = m.keys("clusters/", "/spec"); return nil })
	return names, err
}

func (p clusters) Load(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	c := new(v1alpha1.Cluster)
	err := p.useFor(ctx, func(m *Memory) error {
		if err := m.decode(clusterKey(name, "spec"), c); err != nil {
			return err
		}
		return ignoreMissing(m.decode(clusterKey(name, "status"), &c.Status))
	}, name)
	if err != nil {
		return nil, fmt.Errorf("reading cluster %q: %w", name, err)
	}
	return c, nil
}

func (p clusters) Save(ctx context.Context, c *v1alpha1.Cluster, source *records.Source) error {
	saved := *c
	saved.Status = v1alpha1.ClusterStatus{}
	return p.useFor(ctx, func(m *Memory) error {
		if source != nil {
			m.set(clusterKey(c.Name, "source"), source.Text)
			m.set(clusterKey(c.Name, "source-path"), []byte(source.Path))
		}
		return m.encode(clusterKey(c.Name, "spec"), &saved)
	}, c.Name)
}

func (p clusters) LoadSource(ctx context.Context, name string) (*records.Source, error) {
	var source records.Source
	err := p.useFor(ctx, func(m *Memory) (err error) {
		source.Path = string(m.values[clusterKey(name, "source-path")])
		source.Text, err = m.get(clusterKey(name, "source"))
		return err
	}, name)
	if err != nil {
		return nil, err
	}
	return &source, nil
}

func (p clusters) KeepSource(ctx context.Context, name string) error {
	return p.useFor(ctx, func(m *Memory) error {
		m.set(clusterKey(name, "kept-source"), m.values[clusterKey(name, "source")])
		return nil
	}, name)
}

func (p clusters) LoadKeptSource(ctx context.Context, name string) ([]byte, error) {
	return p.load(ctx, name, "kept-source")
}

func (p clusters) SaveStatus(ctx context.Context, name string, st v1alpha1.ClusterStatus) error {
	return p.useFor(ctx, func(m *Memory) error { return m.encode(clusterKey(name, "status"), st) }, name)
}

func (p clusters) SaveNodes(ctx context.Context, name string, nodes []v1alpha1.NodeStatus) error {
	return p.useFor(ctx, func(m *Memory) error { return m.encode(clusterKey(name, "nodes"), nodes) }, name)
}

func (p clusters) LoadNodes(ctx context.Context, c *v1alpha1.Cluster) (nodes []v1alpha1.NodeStatus, err error) {
	if status.ListsAllNodes(&c.Status) {
		return c.Status.Nodes, nil
	}
	err = p.useFor(ctx, func(m *Memory) error { return m.decode(clusterKey(c.Name, "nodes"), &nodes) }, c.Name)
	if errors.Is(err, records.ErrNotFound) {
		return c.Status.Nodes, nil
	}
	return nodes, err
}

func (p clusters) Remove(ctx context.Context, name string) error {
	return p.useFor(ctx, func(m *Memory) error {
		for _, value := range m.keys(clusterKey(name, ""), "") {
			m.set(clusterKey(name, value), nil)
		}
		return nil
	}, name)
}

// load returns one value of a cluster, or ErrNotFound.
func (p *Process) load(ctx context.Context, cluster, value string) (text []byte, err error) {
	err = p.useFor(ctx, func(m *Memory) error {
		text, err = m.get(clusterKey(cluster, value))
		return err
	}, cluster)
	return text, err
}

func ignoreMissing(err error) error {
	if errors.Is(err, records.ErrNotFound) {
		return nil
	}
	return err
}

type clusterFiles struct{ *Process }

func fileValue(file string) string { return "files/" + file }

func (p clusterFiles) Load(ctx context.Context, name, file string) ([]byte, error) {
	text, err := p.load(ctx, name, fileValue(file))
	return text, ignoreMissing(err)
}

func (p clusterFiles) LoadOrCreate(ctx context.Context, name, file string, content func() ([]byte, error)) ([]byte, error) {
	text, err := p.load(ctx, name, fileValue(file))
	if !errors.Is(err, records.ErrNotFound) {
		return text, err
	}
	made, err := content() // not under the lock of the memory: it can be slow
	if err != nil {
		return nil, err
	}
	err = p.useFor(ctx, func(m *Memory) error {
		key := clusterKey(name, fileValue(file))
		if m.values[key] == nil {
			m.set(key, made)
		}
		text, err = m.get(key)
		return err
	}, name)
	return text, err
}

func (p clusterFiles) Save(ctx context.Context, name, file string, content []byte) error {
	return p.useFor(ctx, func(m *Memory) error { m.set(clusterKey(name, fileValue(file)), content); return nil }, name)
}

func (p clusterFiles) Location(name, file string) string { return file + " of cluster " + name }

type kubeconfigs struct{ *Process }

func (p kubeconfigs) Load(ctx context.Context, name string) ([]byte, error) {
	return p.load(ctx, name, "kubeconfig")
}

func (p kubeconfigs) Save(ctx context.Context, name string, content []byte) error {
	if _, err := kubeconfig.ParseAdmin(content); err != nil {
		return fmt.Errorf("saving the kubeconfig of cluster %q: %w", name, err)
	}
	return p.useFor(ctx, func(m *Memory) error { m.set(clusterKey(name, "kubeconfig"), content); return nil }, name)
}

func (p kubeconfigs) Location(name string) string { return "the kubeconfig of cluster " + name }
