package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Crowded are the pods that a label selector names in a namespace, but for one,
// if they are all on one node; else none.
func (c *Client) Crowded(ctx context.Context, namespace, selector string) ([]string, error) {
	list, err := c.dynamic.Resource(pods).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("listing the pods %s: %w", selector, c.words(err))
	}
	node := ""
	var more []string
	for i := range list.Items {
		p := corev1.Pod{}
		if err := fromUnstructured(&list.Items[i], &p); err != nil {
			return nil, fmt.Errorf("reading pod %s/%s: %w", namespace, list.Items[i].GetName(), err)
		}
		switch {
		case p.Spec.NodeName == "" || p.DeletionTimestamp != nil:
		case node == "":
			node = p.Spec.NodeName
		case node != p.Spec.NodeName:
			return nil, nil
		default:
			more = append(more, p.Name)
		}
	}
	return more, nil
}

// Spread deletes the pods that are Crowded, and waits until they are gone:
// whoever made them makes them again, and knows by then that they are missing.
// The scheduler may have more nodes to choose from by now.
func (c *Client) Spread(ctx context.Context, namespace, selector string) error {
	more, err := c.Crowded(ctx, namespace, selector)
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
		err := c.until(ctx, func(ctx context.Context) (string, error) {
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
