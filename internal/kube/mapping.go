package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// kindCache caches which resource serves a kind. Unknown kinds are queried each time, because
// they may have been defined in the meantime.
type kindCache struct {
	mu    sync.Mutex
	known map[schema.GroupVersionKind]metav1.APIResource
}

// findResource returns the resource that serves a kind. The error satisfies meta.IsNoMatchError if
// the cluster does not know the kind.
func (c *connection) findResource(ctx context.Context, gvk schema.GroupVersionKind) (metav1.APIResource, error) {
	c.kinds.mu.Lock()
	r, ok := c.kinds.known[gvk]
	c.kinds.mu.Unlock()
	if ok {
		return r, nil
	}
	noMatch := &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	path := []string{"/apis", gvk.Group, gvk.Version}
	if gvk.Group == "" {
		path = []string{"/api", gvk.Version}
	}
	raw, err := c.rest.Get().AbsPath(path...).DoRaw(ctx)
	if isNotFound(err) {
		return r, noMatch
	}
	if err != nil {
		return r, err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(raw, &list); err != nil {
		return r, fmt.Errorf("reading the kinds of %s: %w", gvk.GroupVersion(), err)
	}
	c.kinds.mu.Lock()
	defer c.kinds.mu.Unlock()
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") { // "deployments/status" has the same kind
			c.kinds.known[gvk.GroupVersion().WithKind(r.Kind)] = r
		}
	}
	if r, ok := c.kinds.known[gvk]; ok {
		return r, nil
	}
	return r, noMatch
}

// resourceFor returns the resource interface for an object, and a copy of the object with its
// namespace set.
func (c *connection) resourceFor(ctx context.Context, obj *unstructured.Unstructured) (dynamic.ResourceInterface,
	*unstructured.Unstructured, error,
) {
	obj = obj.DeepCopy()
	gvk := obj.GroupVersionKind()
	r, err := c.findResource(ctx, gvk)
	if err != nil {
		return nil, obj, err
	}
	all := c.dynamic.Resource(gvk.GroupVersion().WithResource(r.Name))
	if !r.Namespaced {
		obj.SetNamespace("")
		return all, obj, nil
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(metav1.NamespaceDefault)
	}
	return all.Namespace(obj.GetNamespace()), obj, nil
}

// definedKinds returns the kinds of a CustomResourceDefinition.
func definedKinds(definition *unstructured.Unstructured) []schema.GroupVersionKind {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	var out []schema.GroupVersionKind
	for _, v := range versions {
		if m, ok := v.(map[string]any); ok && m["served"] == true {
			name, _ := m["name"].(string)
			out = append(out, schema.GroupVersionKind{Group: group, Version: name, Kind: kind})
		}
	}
	return out
}
