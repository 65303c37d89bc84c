package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Objects is a client for objects of any kind.
type Objects struct{ *connection }

// Apply applies objs with server-side apply: namespaces and CustomResourceDefinitions
// first, the others in their order. Slipway becomes the owner of the given fields; other
// fields are kept. Apply stops at the first error.
func (c Objects) Apply(ctx context.Context, objs []*unstructured.Unstructured) error {
	for _, obj := range sortByDependency(objs) {
		if err := c.applyOne(ctx, obj); err != nil {
			return fmt.Errorf("applying %s: %w", objectName(obj), c.describeError(err))
		}
	}
	return nil
}

func (c Objects) applyOne(ctx context.Context, obj *unstructured.Unstructured) error {
	r, obj, err := c.resourceFor(ctx, obj)
	if err != nil {
		return err
	}
	_, err = r.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	if err != nil || !isDefinition(obj) {
		return err
	}
	// Until a definition is established and published, requests for its kinds return
	// "not found".
	return c.waitUntil(ctx, func(ctx context.Context) (string, error) {
		live, err := r.Get(ctx, obj.GetName(), metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if conditionStatus(live, "Established") != "True" {
			return "the definition is not established yet", nil
		}
		for _, gvk := range definedKinds(live) {
			if _, err := c.findResource(ctx, gvk); meta.IsNoMatchError(err) {
				return "its kind is not served yet", nil
			} else if err != nil {
				return "", err
			}
		}
		return "", nil
	})
}

// FindExisting returns the objs that exist in the cluster.
func (c Objects) FindExisting(ctx context.Context, objs []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, obj := range objs {
		r, obj, err := c.resourceFor(ctx, obj)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err == nil {
			_, err = r.Get(ctx, obj.GetName(), metav1.GetOptions{})
		}
		if isNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", objectName(obj), c.describeError(err))
		}
		out = append(out, obj)
	}
	return out, nil
}

// Delete deletes objs in reverse order and waits until they are gone. It ignores objects
// that do not exist.
func (c Objects) Delete(ctx context.Context, objs []*unstructured.Unstructured) error {
	list := sortByDependency(objs)
	slices.Reverse(list)
	for _, obj := range list {
		if err := c.deleteOne(ctx, obj); err != nil {
			return fmt.Errorf("deleting %s: %w", objectName(obj), c.describeError(err))
		}
	}
	return nil
}

func (c Objects) deleteOne(ctx context.Context, obj *unstructured.Unstructured) error {
	return c.deleteWithPreconditions(ctx, obj, nil)
}

// deleteWithPreconditions deletes an object if it meets the preconditions; nil means none.
func (c Objects) deleteWithPreconditions(ctx context.Context, obj *unstructured.Unstructured, still *metav1.Preconditions) error {
	r, obj, err := c.resourceFor(ctx, obj)
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return err
	}
	policy := metav1.DeletePropagationBackground
	err = r.Delete(ctx, obj.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: still})
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.waitUntil(ctx, func(ctx context.Context) (string, error) {
		live, err := r.Get(ctx, obj.GetName(), metav1.GetOptions{})
		if isNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		if f := live.GetFinalizers(); len(f) > 0 {
			return fmt.Sprintf("the object still exists, because of finalizers %v", f), nil
		}
		return "the object still exists", nil
	})
}

// sortByDependency sorts objects by dependency: namespaces first, then CustomResourceDefinitions.
func sortByDependency(objs []*unstructured.Unstructured) []*unstructured.Unstructured {
	rank := func(u *unstructured.Unstructured) int {
		switch {
		case u.GetKind() == "Namespace" && u.GetAPIVersion() == "v1":
			return 0
		case isDefinition(u):
			return 1
		}
		return 2
	}
	out := slices.Clone(objs)
	slices.SortStableFunc(out, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return out
}

func isDefinition(u *unstructured.Unstructured) bool {
	return u.GetKind() == "CustomResourceDefinition" && u.GroupVersionKind().Group == "apiextensions.k8s.io"
}

// Get returns an object from the cluster, nil if the object does not exist or the cluster
// does not know its kind.
func (c Objects) Get(ctx context.Context, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	r, obj, err := c.resourceFor(ctx, obj)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err == nil {
		obj, err = r.Get(ctx, obj.GetName(), metav1.GetOptions{})
	}
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", objectName(obj), c.describeError(err))
	}
	return obj, nil
}

// DeleteLive deletes exactly the live object that was read, and waits until it is gone.
// It does not delete a new object with the same name.
func (c Objects) DeleteLive(ctx context.Context, live *unstructured.Unstructured) error {
	var still *metav1.Preconditions
	if uid := live.GetUID(); uid != "" {
		still = &metav1.Preconditions{UID: &uid}
	}
	if err := c.deleteWithPreconditions(ctx, live, still); err != nil {
		return fmt.Errorf("deleting %s: %w", objectName(live), c.describeError(err))
	}
	return nil
}

// RemoveLabel removes a label from an object and changes nothing else.
func (c Objects) RemoveLabel(ctx context.Context, obj *unstructured.Unstructured, label string) error {
	r, obj, err := c.resourceFor(ctx, obj)
	if err == nil {
		var patch []byte
		if patch, err = json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{label: nil}}}); err == nil {
			_, err = r.Patch(ctx, obj.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
		}
	}
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("removing label %s from %s: %w", label, objectName(obj), c.describeError(err))
	}
	return nil
}

// ListNames returns the names of the objects of a resource, given as "group/version/resource",
// as "namespace/name"; none if the API server does not serve it.
func (c Objects) ListNames(ctx context.Context, resource string) (out []string, err error) {
	parts := strings.Split(resource, "/")
	if len(parts) != 3 {
		return nil, fmt.Errorf("%q is not of the form group/version/resource", resource)
	}
	list, err := c.dynamic.Resource(schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}).List(ctx,
		metav1.ListOptions{})
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", resource, c.describeError(err))
	}
	for _, item := range list.Items {
		name := item.GetName()
		if item.GetNamespace() != "" {
			name = item.GetNamespace() + "/" + name
		}
		out = append(out, name)
	}
	return out, nil
}
