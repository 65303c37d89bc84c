package kube

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// GetLive returns an object from the cluster, nil if the object does not exist or the cluster
// does not know its kind.
func (c *Client) GetLive(ctx context.Context, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
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
func (c *Client) DeleteLive(ctx context.Context, live *unstructured.Unstructured) error {
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
func (c *Client) RemoveLabel(ctx context.Context, obj *unstructured.Unstructured, label string) error {
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

// ConfigMaps returns the ConfigMaps of a namespace that have a label.
func (c *Client) ConfigMaps(ctx context.Context, namespace, label string) ([]corev1.ConfigMap, error) {
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

// WaitSettled waits until an object is ready: a workload is rolled out, a Job has finished,
// a pod is ready or an API is served. It does not wait for objects of other kinds.
// progress, which may be nil, is called with what is still missing. Only ctx limits the
// time.
func (c *Client) WaitSettled(ctx context.Context, obj *unstructured.Unstructured, progress func(string)) error {
	look := c.settleCheck(obj)
	if look == nil {
		return nil
	}
	if err := c.WaitUntil(ctx, withProgress(progress, look)); err != nil {
		return fmt.Errorf("waiting for %s: %w", objectName(obj), err)
	}
	return nil
}

// IsAwaited reports whether WaitSettled waits for objects of this kind.
func (c *Client) IsAwaited(obj *unstructured.Unstructured) bool { return c.settleCheck(obj) != nil }

func (c *Client) settleCheck(obj *unstructured.Unstructured) func(context.Context) (string, error) {
	kind, group := obj.GetKind(), obj.GroupVersionKind().Group
	live := func(judge func(*unstructured.Unstructured) (string, error)) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			u, err := c.GetLive(ctx, obj)
			if err != nil {
				return "", err
			}
			if u == nil {
				return "it does not exist", nil
			}
			return judge(u)
		}
	}
	switch {
	case group == "apps" && (kind == "Deployment" || kind == "DaemonSet" || kind == "StatefulSet"):
		namespace := obj.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		look, _ := c.rolloutCheck(kind, namespace, obj.GetName()) // these kinds have rollouts
		return look
	case group == "batch" && kind == "Job":
		return live(jobPending)
	case group == "" && kind == "Pod":
		return live(podPending)
	case group == "apiregistration.k8s.io" && kind == "APIService":
		return live(func(u *unstructured.Unstructured) (string, error) {
			if conditionStatus(u, "Available") != "True" {
				return "its API is not served yet", nil
			}
			return "", nil
		})
	}
	return nil
}

// jobPending returns what a Job still lacks, or an error if it has failed.
func jobPending(u *unstructured.Unstructured) (string, error) {
	switch {
	case conditionStatus(u, "Complete") == "True":
		return "", nil
	case conditionStatus(u, "Failed") == "True":
		return "", &Error{
			Reason:  ReasonFailed,
			Message: "the job has failed; 'kubectl logs -n " + u.GetNamespace() + " job/" + u.GetName() + "' may say why",
		}
	}
	return "the job has not finished", nil
}

// podPending returns what a Pod without a controller still lacks: it must have succeeded or be
// ready.
func podPending(u *unstructured.Unstructured) (string, error) {
	switch phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); {
	case phase == "Succeeded" || phase == "Running" && conditionStatus(u, "Ready") == "True":
		return "", nil
	case phase == "Failed":
		return "", &Error{
			Reason:  ReasonFailed,
			Message: "the pod has failed; 'kubectl logs -n " + u.GetNamespace() + " " + u.GetName() + "' may say why",
		}
	}
	return "the pod is not ready", nil
}
