package manifests

import (
	"cmp"
	"crypto/rand"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.dev/slipway/api/v1alpha1"
)

// Kinds that the installation treats in a special way.
const (
	KindDefinition = "CustomResourceDefinition"
	KindDeployment = "Deployment"
)

// MembersGroup is the start of the names of the Leases of the processes that share clusters.
const MembersGroup = Name + "-members"

// randomLength is the length of the random part of the name of a process.
const randomLength = 6

// NewIdentity returns the name of a process: the name of its Pod or machine, in the characters of object names, and a random
// part, because two processes can have the same host name.
func NewIdentity(host string) string {
	valid := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(host))
	return cmp.Or(strings.Trim(valid, "-"), "host") + "." + strings.ToLower(rand.Text()[:randomLength])
}

// PodOf returns the name of the Pod of a process.
func PodOf(identity string) string { return identity[:max(0, strings.LastIndexByte(identity, '.'))] }

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
