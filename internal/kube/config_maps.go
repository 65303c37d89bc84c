package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConfigMaps is a client for ConfigMaps.
type ConfigMaps struct{ *connection }

// FindFieldManagers returns the field managers that set the current value of a key of a ConfigMap,
// sorted: "kubeadm", "kubectl-edit". found reports whether the key exists.
func (c ConfigMaps) FindFieldManagers(ctx context.Context, namespace, name, key string) (by []string, found bool, err error) {
	cm, err := c.Get(ctx, namespace, name)
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

// Get returns a ConfigMap, nil without an error if it does not exist.
func (c ConfigMaps) Get(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	u, err := c.dynamic.Resource(configMaps).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, name, c.describeError(err))
	}
	cm := &corev1.ConfigMap{}
	if err := fromUnstructured(u, cm); err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, name, err)
	}
	return cm, nil
}

// List returns the ConfigMaps of a namespace that have a label.
func (c ConfigMaps) List(ctx context.Context, namespace, label string) ([]corev1.ConfigMap, error) {
	list, err := c.dynamic.Resource(configMaps).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return nil, fmt.Errorf("listing ConfigMaps of %s: %w", namespace, c.describeError(err))
	}
	var out []corev1.ConfigMap
	for i := range list.Items {
		cm := corev1.ConfigMap{}
		if err := fromUnstructured(&list.Items[i], &cm); err != nil {
			return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, list.Items[i].GetName(), err)
		}
		if _, ok := cm.Labels[label]; ok {
			out = append(out, cm)
		}
	}
	return out, nil
}
