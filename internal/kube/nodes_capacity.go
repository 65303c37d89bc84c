package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"
)

// asScheduled counts the requests of a running pod as the scheduler does: after a resize, the
// maximum of what the pod wants and what it still has.
var asScheduled = resource.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}

// ToleratesNodeOf reports whether a node can take the pods of another node: it is ready, it is not
// cordoned (or only by Slipway), and it has no taint that the other node lacks and its pods
// may not tolerate.
func ToleratesNodeOf(n, from *corev1.Node) bool {
	return n.Name != from.Name && NodeStateOf(n).Ready && (!n.Spec.Unschedulable || IsCordoned(n)) &&
		!slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key != corev1.TaintNodeUnschedulable && t.Effect != corev1.TaintEffectPreferNoSchedule &&
				!slices.ContainsFunc(from.Spec.Taints, func(has corev1.Taint) bool { return has.MatchTaint(&t) })
		})
}

// InsufficientCapacity returns the nodes whose pods request more resources than are free on all nodes
// that could take them, as "node: details". It does not check whether each pod fits on one
// node.
func (c Nodes) InsufficientCapacity(ctx context.Context, all []corev1.Node, leave []string) (out []string, err error) {
	list, err := c.dynamic.Resource(pods).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", c.describeError(err))
	}
	used, goes := map[string]corev1.ResourceList{}, map[string]corev1.ResourceList{}
	for i := range list.Items {
		p := &corev1.Pod{}
		if err := fromUnstructured(&list.Items[i], p); err != nil {
			return nil, fmt.Errorf("reading pod %s/%s: %w", list.Items[i].GetNamespace(), list.Items[i].GetName(), err)
		}
		if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		used[p.Spec.NodeName] = addResources(used[p.Spec.NodeName], resource.PodRequests(p, asScheduled))
		if isEvicted(p) { // the pod that replaces it has the requests of its specification
			goes[p.Spec.NodeName] = addResources(goes[p.Spec.NodeName], resource.PodRequests(p, resource.PodResourcesOptions{}))
		}
	}
	for i := range all {
		if !slices.Contains(leave, all[i].Name) {
			continue
		}
		free := corev1.ResourceList{}
		for j := range all {
			if ToleratesNodeOf(&all[j], &all[i]) {
				free = addResources(free, subtractResources(all[j].Status.Allocatable, used[all[j].Name]))
			}
		}
		for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			want, have := goes[all[i].Name][r], free[r]
			if want.Cmp(have) > 0 {
				out = append(out, fmt.Sprintf("%s: its pods request %s of %s, but only %s is free", all[i].Name, want.String(), r, have.String()))
			}
		}
	}
	return out, nil
}

// addResources returns the sum of two resource lists.
func addResources(a, b corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, list := range []corev1.ResourceList{a, b} {
		for r, q := range list {
			sum := out[r]
			sum.Add(q)
			out[r] = sum
		}
	}
	return out
}

// subtractResources returns the difference of two resource lists, without values that are not
// positive.
func subtractResources(a, b corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for r, q := range a {
		left := q.DeepCopy()
		if left.Sub(b[r]); left.Sign() > 0 {
			out[r] = left
		}
	}
	return out
}
