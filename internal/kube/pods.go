package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pods is a client for pods.
type Pods struct{ *connection }

// A PodImage is an image of pods.
type PodImage struct {
	// Name is the name in pods, ID the id of the runtime: with a digest if the image was
	// pulled.
	Name, ID string
}

// ListImages returns the images of all pods, each once, sorted by name.
func (c Pods) ListImages(ctx context.Context) ([]PodImage, error) {
	list, err := c.dynamic.Resource(pods).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", c.describeError(err))
	}
	ids := map[string]string{}
	for i := range list.Items {
		var p corev1.Pod
		if err := fromUnstructured(&list.Items[i], &p); err != nil {
			return nil, fmt.Errorf("reading pod %s: %w", list.Items[i].GetName(), err)
		}
		is := map[string]string{}
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			is[s.Name] = s.ImageID
		}
		for _, one := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			if id := is[one.Name]; ids[one.Image] == "" || id > ids[one.Image] { // of several ids, always choose the same
				ids[one.Image] = id
			}
		}
	}
	var out []PodImage
	for name, id := range ids {
		out = append(out, PodImage{name, id})
	}
	slices.SortFunc(out, func(a, b PodImage) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// listOnNode returns the pods on a node.
func (c Pods) listOnNode(ctx context.Context, node string) ([]corev1.Pod, error) {
	list, err := c.dynamic.Resource(pods).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, c.describeError(err))
	}
	out := make([]corev1.Pod, len(list.Items))
	for i := range list.Items {
		if err := fromUnstructured(&list.Items[i], &out[i]); err != nil {
			return nil, fmt.Errorf("reading pod %s/%s: %w", list.Items[i].GetNamespace(), list.Items[i].GetName(), err)
		}
	}
	return out, nil
}

// listToEvict returns the pods to evict from a node, sorted by name.
func (c Pods) listToEvict(ctx context.Context, node string) ([]corev1.Pod, error) {
	out, err := c.listOnNode(ctx, node)
	if err != nil {
		return nil, err
	}
	out = slices.DeleteFunc(out, func(p corev1.Pod) bool { return !isEvicted(&p) })
	slices.SortFunc(out, func(a, b corev1.Pod) int { return strings.Compare(podName(&a), podName(&b)) })
	return out, nil
}

func isEvicted(p *corev1.Pod) bool {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return false
	}
	owner := metav1.GetControllerOf(p)
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	return !ended && (owner == nil || owner.Kind != "DaemonSet")
}

func podName(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// DeleteOnNode deletes the pods of a permanently lost node, without waiting for a kubelet.
// The cluster would do the same a minute later.
func (c Pods) DeleteOnNode(ctx context.Context, node string) error {
	list, err := c.listOnNode(ctx, node)
	if err != nil {
		return err
	}
	for i := range list {
		p := &list[i]
		err := c.dynamic.Resource(pods).Namespace(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &p.UID},
		})
		if err != nil && !isNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting pod %s: %w", podName(p), c.describeError(err))
		}
	}
	return nil
}

// podCondition returns a condition of a pod, or an empty one.
func podCondition(p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, cond := range p.Status.Conditions {
		if cond.Type == kind {
			return cond
		}
	}
	return corev1.PodCondition{}
}
