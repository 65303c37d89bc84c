package kube

import (
	"context"
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
)

// ApplyObjects applies objs with server-side apply: namespaces and CustomResourceDefinitions
// first, the others in their order. Slipway becomes the owner of the given fields; other
// fields are kept. Apply stops at the first error.
func (c *Client) ApplyObjects(ctx context.Context, objs []*unstructured.Unstructured) error {
	for _, obj := range sortByDependency(objs) {
		if err := c.applyOne(ctx, obj); err != nil {
			return fmt.Errorf("applying %s: %w", objectName(obj), c.describeError(err))
		}
	}
	return nil
}

func (c *Client) applyOne(ctx context.Context, obj *unstructured.Unstructured) error {
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
	return c.WaitUntil(ctx, func(ctx context.Context) (string, error) {
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
func (c *Client) FindExisting(ctx context.Context, objs []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
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

// DeleteObjects deletes objs in reverse order and waits until they are gone. It ignores objects
// that do not exist.
func (c *Client) DeleteObjects(ctx context.Context, objs []*unstructured.Unstructured) error {
	list := sortByDependency(objs)
	slices.Reverse(list)
	for _, obj := range list {
		if err := c.deleteOne(ctx, obj); err != nil {
			return fmt.Errorf("deleting %s: %w", objectName(obj), c.describeError(err))
		}
	}
	return nil
}

func (c *Client) deleteOne(ctx context.Context, obj *unstructured.Unstructured) error {
	return c.deleteWithPreconditions(ctx, obj, nil)
}

// deleteWithPreconditions deletes an object if it meets the preconditions; nil means none.
func (c *Client) deleteWithPreconditions(ctx context.Context, obj *unstructured.Unstructured, still *metav1.Preconditions) error {
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
	return c.WaitUntil(ctx, func(ctx context.Context) (string, error) {
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

// conditionStatus returns the status of a condition of an object, "" if it has none.
func conditionStatus(u *unstructured.Unstructured, name string) string {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, item := range list {
		if m, ok := item.(map[string]any); ok && m["type"] == name {
			s, _ := m["status"].(string)
			return s
		}
	}
	return ""
}

// WaitUntil calls look repeatedly until it returns "" or an error that is not temporary. When
// ctx ends, the error contains what was missing last.
func (c *Client) WaitUntil(ctx context.Context, look func(context.Context) (missing string, err error)) error {
	var failed error
	last := "there was no response yet"
	pause := wait.Backoff{Duration: c.first, Factor: 2, Cap: c.interval, Steps: math.MaxInt32}
	err := pause.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (done bool, err error) {
		missing, err := look(ctx)
		switch err := c.describeError(err); {
		case err == nil && missing == "":
			return true, nil
		case err == nil:
			last = missing
		case ctx.Err() != nil: // the wait ends with the last message
		case IsTemporary(err):
			last = err.Error()
		default:
			failed = err
		}
		return false, failed
	})
	if err == nil || failed != nil {
		return failed
	}
	return &Error{Reason: ReasonTimeout, Message: "stopped waiting: " + last, Err: err}
}
