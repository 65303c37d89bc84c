package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// FindFieldManagers returns the field managers that set the current value of a key of a ConfigMap,
// sorted: "kubeadm", "kubectl-edit". found reports whether the key exists.
func (c *Client) FindFieldManagers(ctx context.Context, namespace, name, key string) (by []string, found bool, err error) {
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
			continue // ignore entries of another form
		}
		if _, ok := fields.Data["f:"+key]; ok {
			by = append(by, m.Manager)
		}
	}
	slices.Sort(by)
	return slices.Compact(by), true, nil
}

// GetReplicas returns the wanted number of pods of a Deployment, 0 if it does not exist.
func (c *Client) GetReplicas(ctx context.Context, namespace, name string) (int64, error) {
	d := &appsv1.Deployment{}
	err := c.getObject(ctx, "deployments", namespace, name, d)
	if isNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading Deployment %s/%s: %w", namespace, name, c.describeError(err))
	}
	if d.Spec.Replicas == nil {
		return 1, nil
	}
	return int64(*d.Spec.Replicas), nil
}
