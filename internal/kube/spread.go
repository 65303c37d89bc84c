package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Crowded are the pods that a label selector names in a namespace, but for one,
// if they are all on one node, and another has joined since they were put there,
// or grows says that one will; else none. That a node was away meanwhile does not
// count: an operation that restarts its kubelet would find more to do than it said.
func (c *Client) Crowded(ctx context.Context, namespace, selector string, grows bool) ([]string, error) {
	list, err := c.dynamic.Resource(pods).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("listing the pods %s: %w", selector, c.words(err))
	}
	var put time.Time // the latest
	node := ""
	var more []string
	for i := range list.Items {
		p := corev1.Pod{}
		if err := fromUnstructured(&list.Items[i], &p); err != nil {
			return nil, fmt.Errorf("reading pod %s/%s: %w", namespace, list.Items[i].GetName(), err)
		}
		switch {
		case p.Spec.NodeName == "" || p.DeletionTimestamp != nil:
			continue
		case node == "":
			node = p.Spec.NodeName
		case node != p.Spec.NodeName:
			return nil, nil
		default:
			more = append(more, p.Name)
		}
		for _, cond := range p.Status.Conditions {
			if cond.Type == corev1.PodScheduled && cond.LastTransitionTime.After(put) {
				put = cond.LastTransitionTime.Time
			}
		}
	}
	if len(more) == 0 || grows {
		return more, nil
	}
	all, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(all, func(n corev1.Node) bool { return n.Name != node && joinedAfter(&n, put) }) {
		return nil, nil
	}
	return more, nil
}

// joinedAfter says that a node takes pods, and came after then. A cluster tells
// whole seconds.
func joinedAfter(n *corev1.Node, then time.Time) bool {
	return !n.Spec.Unschedulable && !n.CreationTimestamp.Time.Before(then)
}

// Spread deletes the pods that are Crowded, and waits until they are gone:
// whoever made them makes them again, and knows by then that they are missing.
// The scheduler may have more nodes to choose from by now.
func (c *Client) Spread(ctx context.Context, namespace, selector string) error {
	more, err := c.Crowded(ctx, namespace, selector, false)
	if err != nil {
		return err
	}
	r := c.dynamic.Resource(pods).Namespace(namespace)
	for _, name := range more {
		if err := r.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !isNotFound(err) {
			return fmt.Errorf("deleting pod %s/%s: %w", namespace, name, c.words(err))
		}
	}
	for _, name := range more {
		err := c.Until(ctx, func(ctx context.Context) (string, error) {
			_, err := r.Get(ctx, name, metav1.GetOptions{})
			if isNotFound(err) {
				return "", nil
			}
			return "pod " + name + " is ending", err
		})
		if err != nil {
			return fmt.Errorf("moving pod %s/%s: %w", namespace, name, err)
		}
	}
	return nil
}
