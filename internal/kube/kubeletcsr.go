package kube

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.dev/slipway/internal/kubeletcsr"
	"slipway.dev/slipway/internal/node/op"
)

var signingRequests = schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1", Resource: "certificatesigningrequests"}

// ApproveServing approves the pending requests of one kubelet for a serving
// certificate. Requests that the kubelet may not make stay pending, and refused says
// why. It approves what it has read: the API server refuses a request that has been
// changed since, or was made again under the same name.
func (c *Client) ApproveServing(ctx context.Context, kubelet op.KubeletIdentity) (approved, refused []string, err error) {
	list, err := c.dynamic.Resource(signingRequests).List(ctx, metav1.ListOptions{FieldSelector: "spec.signerName=" + kubeletcsr.Signer})
	if err != nil {
		return nil, nil, fmt.Errorf("listing certificate signing requests: %w", c.words(err))
	}
	for i := range list.Items {
		u := &list.Items[i]
		raw, err := u.MarshalJSON()
		if err != nil {
			return nil, nil, fmt.Errorf("reading certificate signing request %s: %w", u.GetName(), err)
		}
		var r kubeletcsr.Request
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, nil, fmt.Errorf("reading certificate signing request %s: %w", u.GetName(), err)
		}
		if !r.Pending() || !r.Of(kubelet.Name) {
			continue
		}
		if why := kubeletcsr.Check(r, []op.KubeletIdentity{kubelet}); why != nil {
			refused = append(refused, u.GetName()+": "+why.Error())
			continue
		}
		if err := c.approve(ctx, u); err != nil {
			return approved, refused, fmt.Errorf("approving certificate signing request %s: %w", u.GetName(), err)
		}
		approved = append(approved, u.GetName())
	}
	return approved, refused, nil
}

// approve approves a request. One that has just been deleted needs no approval.
func (c *Client) approve(ctx context.Context, u *unstructured.Unstructured) error {
	if err := unstructured.SetNestedSlice(u.Object, []any{kubeletcsr.Approval()}, "status", "conditions"); err != nil {
		return err
	}
	_, err := c.dynamic.Resource(signingRequests).Update(ctx, u, metav1.UpdateOptions{FieldManager: FieldManager}, "approval")
	if isNotFound(err) {
		return nil
	}
	return c.words(err)
}
