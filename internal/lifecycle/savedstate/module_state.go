package savedstate

import (
	"context"
	"errors"

	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
)

// A ModuleState adapts the records to the interface of the module that keeps the state of a cluster.
type ModuleState struct{ Records records.Backend }

// Kubeconfig returns the saved admin kubeconfig, nil if there is none.
func (r ModuleState) Kubeconfig(ctx context.Context, name string) ([]byte, error) {
	text, err := r.Records.Kubeconfigs().Load(ctx, name)
	if errors.Is(err, records.ErrNotFound) {
		return nil, nil
	}
	return text, err
}

// SaveKubeconfig saves the admin kubeconfig.
func (r ModuleState) SaveKubeconfig(ctx context.Context, name string, content []byte) error {
	return r.Records.Kubeconfigs().Save(ctx, name, content)
}

// TakeOff removes a host from the saved cluster, and returns the names of the others.
func (r ModuleState) TakeOff(ctx context.Context, cluster, host string) (left []string, err error) {
	c, err := r.Records.Clusters().Load(ctx, cluster)
	if err != nil {
		return nil, err
	}
	spec.RemoveHosts(c, host)
	for _, h := range c.Spec.Hosts {
		left = append(left, h.Name)
	}
	return left, r.Records.Clusters().Save(ctx, c, nil)
}
