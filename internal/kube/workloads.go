package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Workloads is a client for Deployments, StatefulSets and DaemonSets.
type Workloads struct{ *connection }

var daemonSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}

// ListDaemonSets returns the names of all DaemonSets as "namespace/name", sorted.
func (c Workloads) ListDaemonSets(ctx context.Context) ([]string, error) {
	list, err := c.dynamic.Resource(daemonSets).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing DaemonSets: %w", c.describeError(err))
	}
	var out []string
	for _, item := range list.Items {
		out = append(out, item.GetNamespace()+"/"+item.GetName())
	}
	slices.Sort(out)
	return out, nil
}

// A Workload is the owner of pods: a Deployment, StatefulSet or DaemonSet, another
// controller, or the pod itself if it has no controller.
type Workload struct {
	Kind, Namespace, Name string
}

// String returns the workload for users: "Deployment default/web".
func (w Workload) String() string { return w.Kind + " " + w.Namespace + "/" + w.Name }

// CanRestart reports whether it can be restarted, which creates new pods.
func (w Workload) CanRestart() bool {
	return slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet"}, w.Kind)
}

func (w Workload) resourceOf() schema.GroupVersionResource {
	group := "apps"
	switch w.Kind {
	case "Job":
		group = "batch"
	case "Pod":
		group = ""
	}
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: strings.ToLower(w.Kind) + "s"}
}

func (c Workloads) get(ctx context.Context, resource, namespace, name string, into any) error {
	gvr := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}
	u, err := c.dynamic.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return fromUnstructured(u, into)
}

// GetReplicas returns the wanted number of pods of a Deployment, 0 if it does not exist.
func (c Workloads) GetReplicas(ctx context.Context, namespace, name string) (int64, error) {
	d := &appsv1.Deployment{}
	err := c.get(ctx, "deployments", namespace, name, d)
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

// GetImage returns the image of a container of a Deployment or DaemonSet, "" if there is none.
func (c Workloads) GetImage(ctx context.Context, kind, namespace, name, container string) (string, error) {
	d := &appsv1.Deployment{} // these fields are the same in a DaemonSet
	err := c.get(ctx, strings.ToLower(kind)+"s", namespace, name, d)
	if isNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading %s %s/%s: %w", kind, namespace, name, c.describeError(err))
	}
	for _, has := range d.Spec.Template.Spec.Containers {
		if has.Name == container {
			return has.Image, nil
		}
	}
	return "", nil
}

// SetImage sets the image of a container of a Deployment or DaemonSet.
func (c Workloads) SetImage(ctx context.Context, kind, namespace, name, container, image string) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": container, "image": image}},
	}}}})
	if err != nil {
		return err
	}
	resource := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: strings.ToLower(kind) + "s"}
	if _, err := c.dynamic.Resource(resource).Namespace(namespace).Patch(ctx, name, types.StrategicMergePatchType,
		patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("setting the image of %s %s/%s to %s: %w", kind, namespace, name, image, c.describeError(err))
	}
	return nil
}

// IsDeleted reports whether a workload was deleted: it does not exist, or is being deleted.
// For unknown kinds it returns false.
func (c Workloads) IsDeleted(ctx context.Context, w Workload) (bool, error) {
	if !w.CanRestart() && !slices.Contains([]string{"ReplicaSet", "Job", "Pod"}, w.Kind) {
		return false, nil
	}
	u, err := c.dynamic.Resource(w.resourceOf()).Namespace(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	if isNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("checking whether %s was deleted: %w", w, c.describeError(err))
	}
	return u.GetDeletionTimestamp() != nil, nil
}

// ownerOf returns the workload of a pod.
func (c Workloads) ownerOf(ctx context.Context, p *corev1.Pod) (Workload, error) {
	of := metav1.GetControllerOf(p)
	if of == nil {
		return Workload{"Pod", p.Namespace, p.Name}, nil
	}
	if of.Kind == "ReplicaSet" {
		gvr := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
		rs, err := c.dynamic.Resource(gvr).Namespace(p.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		if hash := "-" + p.Labels["pod-template-hash"]; isNotFound(err) && strings.HasSuffix(of.Name, hash) {
			// Its Deployment has deleted the old ReplicaSet.
			return Workload{"Deployment", p.Namespace, strings.TrimSuffix(of.Name, hash)}, nil
		}
		if isNotFound(err) {
			return Workload{of.Kind, p.Namespace, of.Name}, nil
		}
		if err != nil {
			return Workload{}, fmt.Errorf("reading ReplicaSet %s/%s: %w", p.Namespace, of.Name, c.describeError(err))
		}
		if up := metav1.GetControllerOf(rs); up != nil {
			of = up
		}
	}
	return Workload{of.Kind, p.Namespace, of.Name}, nil
}
