package manifests

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.dev/slipway/api/v1alpha1"
)

// Kinds that the installation treats in a special way.
const (
	KindDefinition = "CustomResourceDefinition"
	KindDeployment = "Deployment"
)

// LeaseName is the name of the Lease of the process whose controllers run.
const LeaseName = Name

// WebhookPath is the path of the webhook.
const WebhookPath = "/admission"

// The executors of operations that name none. The first one is the default.
const (
	ExecutorInProcess = "in-process"
	ExecutorJob       = "job"
)

// Resources that the installation reads.
var (
	GroupVersion       = schema.GroupVersion{Group: v1alpha1.Group, Version: v1alpha1.Version}
	LeaseResource      = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	DefinitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	JobResource        = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	WebhookResource    = schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations",
	}
)

// kinds are the kinds of the objects, in the order in which they are applied. Each comes after the kinds that it
// needs, and the webhook last.
var kinds = []string{
	KindDefinition, "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "Service", "PodDisruptionBudget", KindDeployment,
	"ValidatingWebhookConfiguration",
}

// sorted sorts objects by their kinds.
func sorted(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return cmp.Compare(slices.Index(kinds, a.GetKind()), slices.Index(kinds, b.GetKind()))
	})
	return objects
}
