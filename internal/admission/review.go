package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.dev/slipway/api/v1alpha1"
)

// Review responds to the request of an AdmissionReview. It allows requests for objects that it does not check.
func (k *Checker) Review(ctx context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	out := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: true}
	var err error
	switch at := r.Resource; {
	case at.Group == v1alpha1.Group && at.Resource == "clusters" && r.SubResource == "" &&
		(r.Operation == admissionv1.Create || r.Operation == admissionv1.Update):
		out.Warnings, err = k.reviewCluster(r.Object, r.OldObject)
	case at.Group == corev1.GroupName && at.Resource == "namespaces" && r.SubResource == "" && r.Operation == admissionv1.Delete:
		err = k.CheckNamespaceDeletion(ctx, r.Name)
	}
	if err == nil {
		return out
	}
	out.Allowed, out.Result = false, &metav1.Status{Message: err.Error()}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		is := status.Status()
		out.Result = &is
	}
	return out
}

// reviewCluster checks a Cluster in the form of a request.
func (k *Checker) reviewCluster(object, old runtime.RawExtension) (warnings []string, err error) {
	var is v1alpha1.Cluster
	if err := json.Unmarshal(object.Raw, &is); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the Cluster: %v", err))
	}
	if len(old.Raw) == 0 {
		return k.CheckCluster(&is, nil)
	}
	var was v1alpha1.Cluster
	if err := json.Unmarshal(old.Raw, &was); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the stored Cluster: %v", err))
	}
	return k.CheckCluster(&is, &was)
}
