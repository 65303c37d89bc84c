package kube

import (
	"bytes"
	"context"
	"fmt"

	"github.com/rogpeppe/go-internal/diff"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// An Action is the effect of applying an object.
type Action string

// The actions.
const (
	Create Action = "create"
	Update Action = "update"
)

// A Change is the change that applying an object would make.
type Change struct {
	Kind      string // "DaemonSet"
	Namespace string // "" for objects of the cluster
	Name      string
	Action    Action
	// Diff is a unified diff of the objects as YAML, without the fields that the server
	// sets and without the values of Secrets.
	Diff string
}

// ObjectName returns the object for users: "DaemonSet kube-flannel/kube-flannel-ds".
func (c Change) ObjectName() string {
	if c.Namespace == "" {
		return c.Kind + " " + c.Name
	}
	return c.Kind + " " + c.Namespace + "/" + c.Name
}

// Diff returns, by a dry run, what applying objs would change. It leaves out objects
// without a change. An object whose kind or namespace does not exist yet counts as one to
// create.
func (c Objects) Diff(ctx context.Context, objs []*unstructured.Unstructured) ([]Change, error) {
	var out []Change
	for _, obj := range objs {
		ch, err := c.diffOne(ctx, obj)
		if err != nil {
			return nil, fmt.Errorf("comparing %s: %w", objectName(obj), c.describeError(err))
		}
		if ch != nil {
			out = append(out, *ch)
		}
	}
	return out, nil
}

func (c Objects) diffOne(ctx context.Context, obj *unstructured.Unstructured) (*Change, error) {
	r, obj, err := c.resourceFor(ctx, obj)
	if meta.IsNoMatchError(err) {
		return compareObjects(nil, obj)
	}
	if err != nil {
		return nil, err
	}
	live, err := r.Get(ctx, obj.GetName(), metav1.GetOptions{})
	if isNotFound(err) {
		return compareObjects(nil, obj)
	}
	if err != nil {
		return nil, err
	}
	then, err := r.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{
		FieldManager: FieldManager, Force: true, DryRun: []string{metav1.DryRunAll},
	})
	if err != nil {
		return nil, err
	}
	return compareObjects(live, then)
}

// compareObjects compares two states of an object and returns nil if they are equal. was is nil if
// the object does not exist.
func compareObjects(was, will *unstructured.Unstructured) (*Change, error) {
	ch := &Change{Kind: will.GetKind(), Namespace: will.GetNamespace(), Name: will.GetName(), Action: Create}
	var before map[string]any
	after := withoutServerFields(will)
	if was != nil {
		ch.Action = Update
		before = withoutServerFields(was)
		if equality.Semantic.DeepEqual(before, after) {
			return nil, nil
		}
	}
	redactSecretValues(before, after)
	old, err := objectYAML(before)
	if err != nil {
		return nil, err
	}
	now, err := objectYAML(after)
	if err != nil {
		return nil, err
	}
	// The first line repeats the names of the two that follow.
	_, body, _ := bytes.Cut(diff.Diff("live", old, "wanted", now), []byte("\n"))
	ch.Diff = string(body)
	return ch, nil
}

func objectYAML(object map[string]any) ([]byte, error) {
	if object == nil {
		return nil, nil
	}
	return yaml.Marshal(object)
}

// withoutServerFields returns a copy of an object without the fields that the server sets.
func withoutServerFields(u *unstructured.Unstructured) map[string]any {
	object := u.DeepCopy().Object
	delete(object, "status")
	for _, field := range []string{
		"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink",
	} {
		unstructured.RemoveNestedField(object, "metadata", field)
	}
	for _, name := range []string{
		// It repeats the whole object, including the values of Secrets.
		"kubectl.kubernetes.io/last-applied-configuration",
		"deprecated.daemonset.template.generation",
		"deployment.kubernetes.io/revision",
	} {
		unstructured.RemoveNestedField(object, "metadata", "annotations", name)
	}
	for _, field := range []string{"annotations", "labels"} {
		if m, ok, _ := unstructured.NestedMap(object, "metadata", field); ok && len(m) == 0 {
			unstructured.RemoveNestedField(object, "metadata", field)
		}
	}
	return object
}

// redactSecretValues removes the values of Secrets, but shows which of them change.
func redactSecretValues(before, after map[string]any) {
	if after["kind"] != "Secret" {
		return
	}
	for _, field := range []string{"data", "stringData"} {
		old, _ := before[field].(map[string]any)
		now, _ := after[field].(map[string]any)
		for key, value := range now {
			was, had := old[key]
			now[key] = "(secret)"
			if had && was != value {
				now[key] = "(secret, changed)"
			}
		}
		for key := range old {
			old[key] = "(secret)"
		}
		// A value that is not a map is an error in the manifest, but must not be shown
		// either.
		for _, object := range []map[string]any{before, after} {
			if v, ok := object[field]; ok {
				if _, isMap := v.(map[string]any); !isMap && v != nil {
					object[field] = "(secret)"
				}
			}
		}
	}
}

// objectName returns the name of an object for users.
func objectName(u *unstructured.Unstructured) string {
	return Change{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}.ObjectName()
}
