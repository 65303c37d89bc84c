package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// Writers are who, by the API server's own record, gave a ConfigMap's key the
// value that it has, sorted: "kubeadm", "kubectl-edit". found says that there is
// such a key.
func (c *Client) Writers(ctx context.Context, namespace, name, key string) (by []string, found bool, err error) {
	cm, err := c.ConfigMap(ctx, namespace, name)
	if cm == nil || err != nil {
		return nil, false, err
	}
	if _, found = cm.Data[key]; !found {
		return nil, false, nil
	}
	for _, m := range cm.ManagedFields {
		var fields struct {
			Data map[string]json.RawMessage `json:"f:data"`
		}
		if m.FieldsV1 == nil || json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
			continue // a record of another kind says nothing
		}
		if _, ok := fields.Data["f:"+key]; ok {
			by = append(by, m.Manager)
		}
	}
	slices.Sort(by)
	return slices.Compact(by), true, nil
}

// Replicas is how many pods a Deployment shall have; 0 if there is no such
// Deployment.
func (c *Client) Replicas(ctx context.Context, namespace, name string) (int64, error) {
	d := &appsv1.Deployment{}
	err := c.get(ctx, "deployments", namespace, name, d)
	if isNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading Deployment %s/%s: %w", namespace, name, c.words(err))
	}
	if d.Spec.Replicas == nil {
		return 1, nil
	}
	return int64(*d.Spec.Replicas), nil
}
