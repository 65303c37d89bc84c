package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.dev/slipway/internal/kubeletcsr"
	"slipway.dev/slipway/internal/node/op"
)

// CertificateRequests is a client for certificate signing requests.
type CertificateRequests struct{ *connection }

var signingRequests = schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1", Resource: "certificatesigningrequests"}

// ApproveServing approves the pending requests of one kubelet for a serving certificate.
// Requests that are not allowed remain pending, and refused has the reasons. A request
// that changed or was recreated after it was read is not approved: the API server rejects
// that approval.
func (c CertificateRequests) ApproveServing(ctx context.Context, kubelet op.KubeletIdentity) (approved, refused []string, err error) {
	for more := ""; ; {
		list, err := c.dynamic.Resource(signingRequests).List(ctx, metav1.ListOptions{
			FieldSelector: "spec.signerName=" + kubeletcsr.Signer, Limit: kubeletcsr.PageSize, Continue: more,
		})
		if err != nil {
			return approved, refused, fmt.Errorf("listing certificate signing requests: %w", c.describeError(err))
		}
		for i := range list.Items {
			u := &list.Items[i]
			why, err := c.checkAndApprove(ctx, u, kubelet)
			switch {
			case err != nil:
				return approved, refused, fmt.Errorf("approving certificate signing request %q: %w", u.GetName(), err)
			case why == nil:
				approved = append(approved, u.GetName())
			case !errors.Is(why, errNotAsked):
				refused = append(refused, u.GetName()+": "+why.Error())
			}
		}
		if more = list.GetContinue(); more == "" {
			return approved, refused, nil
		}
	}
}

// errNotAsked means that another kubelet made the request, or that it is not pending.
var errNotAsked = errors.New("not a pending request of this kubelet")

// checkAndApprove approves a request if the kubelet made it and may make it. Otherwise why has the
// reason.
func (c CertificateRequests) checkAndApprove(ctx context.Context, u *unstructured.Unstructured,
	kubelet op.KubeletIdentity,
) (why, err error) {
	var r kubeletcsr.Request
	raw, err := u.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil {
		return nil, err
	}
	if !r.IsPending() || !r.IsFromNode(kubelet.Name) {
		return errNotAsked, nil
	}
	if why := kubeletcsr.CheckRequest(r, []op.KubeletIdentity{kubelet}); why != nil {
		return why, nil
	}
	return nil, c.approve(ctx, u)
}

// approve approves a request. A request that was just deleted needs no approval.
func (c CertificateRequests) approve(ctx context.Context, u *unstructured.Unstructured) error {
	if err := unstructured.SetNestedSlice(u.Object, []any{kubeletcsr.ApprovedCondition()}, "status", "conditions"); err != nil {
		return err
	}
	_, err := c.dynamic.Resource(signingRequests).Update(ctx, u, metav1.UpdateOptions{FieldManager: FieldManager}, "approval")
	if isNotFound(err) {
		return nil
	}
	return c.describeError(err)
}
