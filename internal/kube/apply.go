package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Apply makes objs true on the server: namespaces and definitions of kinds
// first, the others in their order. Fields we describe become ours; fields of
// others stay. It stops at the first that fails.
func (c *Client) Apply(ctx context.Context, objs []*unstructured.Unstructured) error {
	for _, obj := range ordered(objs) {
		if err := c.applyOne(ctx, obj); err != nil {
			return fmt.Errorf("applying %s: %w", target(obj), c.words(err))
		}
	}
	return nil
}

func (c *Client) applyOne(ctx context.Context, obj *unstructured.Unstructured) error {
	r, obj, err := c.resource(ctx, obj)
	if err != nil {
		return err
	}
	_, err = r.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	if err != nil || !isDefinition(obj) {
		return err
	}
	// Until a definition is established and published, its kinds answer
	// "not found".
	return c.Until(ctx, func(ctx context.Context) (string, error) {
		live, err := r.Get(ctx, obj.GetName(), metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if condition(live, "Established") != "True" {
			return "it is not established yet", nil
		}
		for _, gvk := range defined(live) {
			if _, err := c.kind(ctx, gvk); meta.IsNoMatchError(err) {
				return "its kind is not served yet", nil
			} else if err != nil {
				return "", err
			}
		}
		return "", nil
	})
}

// Existing answers those of objs that are there.
func (c *Client) Existing(ctx context.Context, objs []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, obj := range objs {
		r, obj, err := c.resource(ctx, obj)
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
			return nil, fmt.Errorf("looking for %s: %w", target(obj), c.words(err))
		}
		out = append(out, obj)
	}
	return out, nil
}

// Delete removes objs, the last first, and waits until they are gone. One
// that is not there is none to remove.
func (c *Client) Delete(ctx context.Context, objs []*unstructured.Unstructured) error {
	list := ordered(objs)
	slices.Reverse(list)
	for _, obj := range list {
		if err := c.deleteOne(ctx, obj); err != nil {
			return fmt.Errorf("deleting %s: %w", target(obj), c.words(err))
		}
	}
	return nil
}

func (c *Client) deleteOne(ctx context.Context, obj *unstructured.Unstructured) error {
	return c.deleteIf(ctx, obj, nil)
}

// deleteIf deletes an object if it is still the one that is meant; nil means
// whichever is there.
func (c *Client) deleteIf(ctx context.Context, obj *unstructured.Unstructured, still *metav1.Preconditions) error {
	r, obj, err := c.resource(ctx, obj)
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
	return c.Until(ctx, func(ctx context.Context) (string, error) {
		live, err := r.Get(ctx, obj.GetName(), metav1.GetOptions{})
		if isNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		if f := live.GetFinalizers(); len(f) > 0 {
			return fmt.Sprintf("it is still there, held by %v", f), nil
		}
		return "it is still there", nil
	})
}

// ordered puts what others need first: namespaces, then definitions of kinds.
func ordered(objs []*unstructured.Unstructured) []*unstructured.Unstructured {
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

// condition is the status of one of an object's conditions.
func condition(u *unstructured.Unstructured, name string) string {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, item := range list {
		if m, ok := item.(map[string]any); ok && m["type"] == name {
			s, _ := m["status"].(string)
			return s
		}
	}
	return ""
}

// Until looks again and again until look answers "" or an error that time
// does not mend. When ctx ends, the error says what was last missing.
func (c *Client) Until(ctx context.Context, look func(context.Context) (missing string, err error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause, last := c.first, "nothing was seen yet"
	for {
		select {
		case <-ctx.Done():
			return &Error{Reason: ReasonTimeout, Message: "gave up waiting: " + last, Err: ctx.Err()}
		case <-timer.C:
		}
		missing, err := look(ctx)
		switch err := c.words(err); {
		case err == nil && missing == "":
			return nil
		case err == nil:
			last = missing
		case ctx.Err() != nil: // the next turn ends it with what was last seen
		case IsTemporary(err):
			last = err.Error()
		default:
			return err
		}
		timer.Reset(pause)
		pause = min(2*pause, c.interval)
	}
}
