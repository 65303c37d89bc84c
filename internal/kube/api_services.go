package kube

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// SilentAPIs returns the aggregated APIs that do not respond to the API server:
// "v1beta1.metrics.k8s.io (reason)".
func (c *Client) SilentAPIs(ctx context.Context) (out []string, err error) {
	list, err := c.dynamic.Resource(apiServices).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing API services: %w", c.describeError(err))
	}
	for _, item := range list.Items {
		if _, handed, _ := unstructured.NestedMap(item.Object, "spec", "service"); !handed {
			continue // served by the API server itself
		}
		group, _, _ := unstructured.NestedString(item.Object, "spec", "group")
		version, _, _ := unstructured.NestedString(item.Object, "spec", "version")
		if err := c.rest.Get().AbsPath("/apis/" + group + "/" + version).Do(ctx).Error(); err != nil {
			out = append(out, item.GetName()+" ("+c.describeError(err).Error()+")")
		}
	}
	slices.Sort(out)
	return out, nil
}
