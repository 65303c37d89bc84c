package kube

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GetEtcdRevision returns the current revision of etcd from the API, because lists are always
// read at the latest revision.
func (c *Client) GetEtcdRevision(ctx context.Context) (int64, error) {
	list, err := c.dynamic.Resource(nodes).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("reading the revision: %w", c.describeError(err))
	}
	revision, err := strconv.ParseInt(list.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the revision: %w", err)
	}
	return revision, nil
}
