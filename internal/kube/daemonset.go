package kube

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var daemonSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}

// DaemonSets returns the names of all DaemonSets as "namespace/name", sorted.
func (c *Client) DaemonSets(ctx context.Context) ([]string, error) {
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
