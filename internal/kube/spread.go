package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// controlPlaneTaint keeps pods from control planes that do not tolerate it.
const controlPlaneTaint = "node-role.kubernetes.io/control-plane"

// A Spreading names the pods of a Deployment that must not all run on one node. They
// must tolerate the taint of control planes.
type Spreading struct {
	Namespace, Deployment string
	// Selector selects the pods, for example "k8s-app=kube-dns".
	Selector string
}

// placement is where the pods of a Deployment run. Pods that end or have ended do not count.
type placement struct {
	replicas int64 // that the Deployment wants; 0 if there is no Deployment
	pods     []corev1.Pod
	nodes    []string  // that run at least one of the pods
	put      time.Time // when the last pod was scheduled
}

// done reports whether nothing has to move: the pods are on several nodes, or there is
// only one.
func (p placement) done() bool { return p.replicas < 2 || len(p.nodes) > 1 }

// scheduled returns how many pods have a node.
func (p placement) scheduled() (n int64) {
	for i := range p.pods {
		if p.pods[i].Spec.NodeName != "" {
			n++
		}
	}
	return n
}

func (c *Client) placement(ctx context.Context, w Spreading) (p placement, err error) {
	if p.replicas, err = c.Replicas(ctx, w.Namespace, w.Deployment); err != nil || p.replicas == 0 {
		return p, err
	}
	list, err := c.dynamic.Resource(pods).Namespace(w.Namespace).List(ctx, metav1.ListOptions{LabelSelector: w.Selector})
	if err != nil {
		return p, fmt.Errorf("listing the pods %s: %w", w.Selector, c.words(err))
	}
	for i := range list.Items {
		var pod corev1.Pod
		if err := fromUnstructured(&list.Items[i], &pod); err != nil {
			return p, fmt.Errorf("reading pod %s/%s: %w", w.Namespace, list.Items[i].GetName(), err)
		}
		if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		p.pods = append(p.pods, pod)
		if at := pod.Spec.NodeName; at != "" && !slices.Contains(p.nodes, at) {
			p.nodes = append(p.nodes, at)
		}
		if at := podCondition(&pod, corev1.PodScheduled).LastTransitionTime.Time; at.After(p.put) {
			p.put = at
		}
	}
	return p, nil
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

// Crowded reports whether the pods are all on one node although another node that takes
// pods has joined since they were scheduled. With grows, another node is about to join.
// A node that was only away meanwhile does not count: an operation that restarts its
// kubelet would find more to do than its plan says.
func (c *Client) Crowded(ctx context.Context, w Spreading, grows bool) (bool, error) {
	p, err := c.placement(ctx, w)
	if err != nil || p.done() || grows {
		return err == nil && !p.done(), err
	}
	if p.scheduled() < 2 {
		return false, nil
	}
	all, err := c.Nodes(ctx)
	return slices.ContainsFunc(all, func(n corev1.Node) bool {
		return n.Name != p.nodes[0] && takesPods(&n) && !n.CreationTimestamp.Time.Before(p.put) // the API has whole seconds
	}), err
}

// takesPods reports whether a node accepts the pods of a Spreading.
func takesPods(n *corev1.Node) bool {
	return State(n).Ready && !n.Spec.Unschedulable && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && t.Key != controlPlaneTaint
	})
}

// isReady reports whether a node is Ready and the cluster has noticed it: until then,
// the node has a taint that keeps pods away.
func isReady(n *corev1.Node) bool {
	return State(n).Ready && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
}

// Spread moves all pods but one away from a node that has all of them: it deletes them
// and waits until others are ready. It waits until there is another node that takes
// pods, or until all nodes that are expected are Ready and none does; then the pods
// remain where they are.
func (c *Client) Spread(ctx context.Context, w Spreading, expected []string, progress func(string)) error {
	var move []corev1.Pod
	err := c.Until(ctx, told(progress, func(ctx context.Context) (string, error) {
		p, err := c.placement(ctx, w)
		if err != nil || p.done() {
			return "", err
		}
		if n := p.scheduled(); n < p.replicas {
			return fmt.Sprintf("%d of %d pods have a node", n, p.replicas), nil
		}
		all, err := c.Nodes(ctx)
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(all, func(n corev1.Node) bool { return n.Name != p.nodes[0] && takesPods(&n) }) {
			move = p.pods[1:]
			return "", nil
		}
		for _, name := range expected {
			if !slices.ContainsFunc(all, func(n corev1.Node) bool { return n.Name == name && isReady(&n) }) {
				return "node " + name + " is not Ready", nil
			}
		}
		return "", nil
	}))
	if err != nil {
		return fmt.Errorf("waiting for another node for %s/%s: %w", w.Namespace, w.Deployment, err)
	}
	return c.replace(ctx, w, move, progress)
}

// replace deletes pods of a Deployment and waits until as many others are ready. It does
// not wait for the end of the deleted pods.
func (c *Client) replace(ctx context.Context, w Spreading, old []corev1.Pod, progress func(string)) error {
	if len(old) == 0 {
		return nil
	}
	r := c.dynamic.Resource(pods).Namespace(w.Namespace)
	for i := range old {
		name, uid := old[i].Name, old[i].UID
		err := r.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !isNotFound(err) {
			return fmt.Errorf("deleting pod %s/%s: %w", w.Namespace, name, c.words(err))
		}
	}
	err := c.Until(ctx, told(progress, func(ctx context.Context) (string, error) {
		p, err := c.placement(ctx, w)
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
