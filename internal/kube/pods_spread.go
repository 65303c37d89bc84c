package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ControlPlaneTaint keeps pods from control planes that do not tolerate it. The label of
// control planes has the same name.
const ControlPlaneTaint = "node-role.kubernetes.io/control-plane"

// A SpreadTarget names the pods of a Deployment that must not all run on one node. They
// must tolerate the taint of control planes.
type SpreadTarget struct {
	Namespace, Deployment string
	// Selector selects the pods, for example "k8s-app=kube-dns".
	Selector string
}

// placement holds the pods of a Deployment and their nodes. Pods without a node, and pods
// that terminate or have ended, do not count.
type placement struct {
	replicas int64 // wanted by the Deployment; 0 if there is no Deployment
	pods     []corev1.Pod
	nodes    []string  // nodes with at least one of the pods
	put      time.Time // the time when the last pod was scheduled
}

func (c Pods) readPlacement(ctx context.Context, w SpreadTarget) (p placement, err error) {
	p.replicas, err = Workloads(c).GetReplicas(ctx, w.Namespace, w.Deployment)
	if err != nil || p.replicas == 0 {
		return p, err
	}
	list, err := c.dynamic.Resource(pods).Namespace(w.Namespace).List(ctx, metav1.ListOptions{LabelSelector: w.Selector})
	if err != nil {
		return p, fmt.Errorf("listing the pods %s: %w", w.Selector, c.describeError(err))
	}
	for i := range list.Items {
		var pod corev1.Pod
		if err := fromUnstructured(&list.Items[i], &pod); err != nil {
			return p, fmt.Errorf("reading pod %s/%s: %w", w.Namespace, list.Items[i].GetName(), err)
		}
		if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed ||
			pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		p.pods = append(p.pods, pod)
		if at := pod.Spec.NodeName; !slices.Contains(p.nodes, at) {
			p.nodes = append(p.nodes, at)
		}
		if at := podCondition(&pod, corev1.PodScheduled).LastTransitionTime.Time; at.After(p.put) {
			p.put = at
		}
	}
	return p, nil
}

// AreColocated reports whether all pods are on one node although another node accepts pods. Only
// the new node joined, or a node that joined after the pods were scheduled, counts as
// another node. A node that was only down does not count: otherwise an operation that
// restarts its kubelet would have to do more than its plan.
func (c Pods) AreColocated(ctx context.Context, w SpreadTarget, joined string) (bool, error) {
	more, err := c.listToMove(ctx, w, joined)
	return len(more) > 0, err
}

// listToMove returns the pods that must move: all but one, if all are on one node
// although another node accepts pods.
func (c Pods) listToMove(ctx context.Context, w SpreadTarget, joined string) ([]corev1.Pod, error) {
	p, err := c.readPlacement(ctx, w)
	if err != nil || p.replicas < 2 || len(p.nodes) != 1 || len(p.pods) < 2 {
		return nil, err
	}
	all, err := Nodes(c).List(ctx)
	if err != nil || !slices.ContainsFunc(all, func(n corev1.Node) bool {
		since := n.Name == joined || !n.CreationTimestamp.Time.Before(p.put) // the API has whole seconds
		return n.Name != p.nodes[0] && acceptsPods(&n) && since
	}) {
		return nil, err
	}
	return p.pods[1:], nil
}

// acceptsPods reports whether a node accepts pods that tolerate the taint of control
// planes.
func acceptsPods(n *corev1.Node) bool {
	return NodeStateOf(n).Ready && !n.Spec.Unschedulable && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		evicts := t.Effect == corev1.TaintEffectNoExecute && t.Key == corev1.TaintNodeNotReady // pods tolerate it for a while
		return t.Effect != corev1.TaintEffectPreferNoSchedule && t.Key != ControlPlaneTaint && !evicts
	})
}

// Spread deletes all pods but one if all are on one node although another node accepts
// pods. It waits until other pods are ready in their place, and does not wait for the end
// of the deleted pods.
func (c Pods) Spread(ctx context.Context, w SpreadTarget, joined string, progress func(string)) error {
	old, err := c.listToMove(ctx, w, joined)
	if err != nil || len(old) == 0 {
		return err
	}
	r := c.dynamic.Resource(pods).Namespace(w.Namespace)
	for i := range old {
		name, uid := old[i].Name, old[i].UID
		err := r.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !isNotFound(err) {
			return fmt.Errorf("deleting pod %s/%s: %w", w.Namespace, name, c.describeError(err))
		}
	}
	err = c.waitUntil(ctx, withProgress(progress, func(ctx context.Context) (string, error) {
		p, err := c.readPlacement(ctx, w)
		var ready int64
		for i := range p.pods {
			if podCondition(&p.pods[i], corev1.PodReady).Status == corev1.ConditionTrue {
				ready++
			}
		}
		if err != nil || ready >= p.replicas {
			return "", err
		}
		return fmt.Sprintf("%d of %d pods are ready", ready, p.replicas), nil
	}))
	if err != nil {
		return fmt.Errorf("moving pods of %s/%s: %w", w.Namespace, w.Deployment, err)
	}
	return nil
}
