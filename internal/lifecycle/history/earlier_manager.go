package history

import (
	"context"
	"encoding/json"
	"fmt"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/records"
)

// Base stands for the operations that only an earlier manager of a cluster has.
type Base struct {
	// Cluster is the description that was applied last.
	Cluster *v1alpha1.Cluster `json:"cluster"`
	// EtcdReplacements is the number of restores and rescues since the creation.
	EtcdReplacements int `json:"etcdReplacements"`
}

// SaveBase saves the base of a cluster.
func SaveBase(ctx context.Context, to records.ClusterFiles, b Base) error {
	text, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("saving the base of cluster %s: %w", b.Cluster.Name, err)
	}
	return to.Save(ctx, b.Cluster.Name, records.BaseFile, text)
}

// loadBase returns the base of a cluster, an empty one if this manager has created the cluster.
func (h History) loadBase(ctx context.Context, name string) (b Base, err error) {
	text, err := h.View.Records.ClusterFiles().Load(ctx, name, records.BaseFile)
	if err != nil || text == nil {
		return b, err
	}
	if err := json.Unmarshal(text, &b); err != nil {
		return b, fmt.Errorf("reading the base of cluster %s: %w", name, err)
	}
	return b, nil
}
