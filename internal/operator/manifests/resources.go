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
const LeaseName = "slipway-controllers"

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
var kinds = []struct {
	name, resource string
	isNamespaced   bool
}{
	{KindDefinition, "customresourcedefinitions", false},
	{"Namespace", "namespaces", false},
	{"ServiceAccount", "serviceaccounts", true},
	{"ClusterRole", "clusterroles", false},
	{"ClusterRoleBinding", "clusterrolebindings", false},
	{"Role", "roles", true},
	{"RoleBinding", "rolebindings", true},
	{"ValidatingAdmissionPolicy", "validatingadmissionpolicies", false},
	{"ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false},
	{"Service", "services", true},
	{"PodDisruptionBudget", "poddisruptionbudgets", true},
	{KindDeployment, "deployments", true},
	{"ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false},
}

// kindJob is the kind of the Jobs of operations, which the installation does not make.
const kindJob = "Job"

// ResourceOf returns the resource of a kind of the objects, or of Jobs.
func ResourceOf(kind string) (resource string, isNamespaced, ok bool) {
	if kind == kindJob {
		return JobResource.Resource, true, true
	}
	i := indexOf(kind)
	if i < 0 {
		return "", false, false
	}
	return kinds[i].resource, kinds[i].isNamespaced, true
}

func indexOf(kind string) int {
	for i, k := range kinds {
		if k.name == kind {
			return i
		}
	}
	return -1
}

// sorted sorts objects by their kinds.
func sorted(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return cmp.Compare(indexOf(a.GetKind()), indexOf(b.GetKind()))
	})
	return objects
}
