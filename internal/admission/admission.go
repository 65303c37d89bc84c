// Package admission decides whether the API stores a Cluster, with the rules and texts of the command line. It reads
// the object and the claims on hosts, and connects to nothing. The management server calls it in its own process; a
// webhook can serve Checker.Review.
//
// Secrets and ConfigMaps of a Cluster can be created after it, so they are not checked: the controller of Clusters
// shows what is missing. An object that was stored can be changed although it has problems, if the change adds none:
// a later version of Slipway can have more rules.
package admission

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/hostclaims"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/apicheck"
)

// A Checker checks changes of objects. The zero value accepts all versions and knows no other Cluster.
type Checker struct {
	// Supported returns an error for an unsupported Kubernetes version. Nil supports all.
	Supported func(version string) error
	// DefaultVersion is the version of a Cluster that has none.
	DefaultVersion string
	// Claims has the hosts of all Clusters. It can be a moment older than the API, so the controller of Clusters
	// decides about objects that were stored at the same time. Nil: hosts are not compared.
	Claims *hostclaims.Index
	// ListClusters returns the Clusters of a namespace as they are stored. Nil: deletions of namespaces are not checked.
	ListClusters func(ctx context.Context, namespace string) ([]v1alpha1.Cluster, error)
}

// CheckCluster returns why a Cluster cannot be stored, and warnings. old is the stored object, nil for a new one.
func (k *Checker) CheckCluster(object, old *v1alpha1.Cluster) (warnings []string, err error) {
	if object.DeletionTimestamp != nil || old != nil && equality.Semantic.DeepEqual(object.Spec, old.Spec) {
		return nil, nil
	}
	found := k.findProblems(object)
	if old != nil && len(found.Errors()) > 0 {
		known := k.findProblems(old)
		found = slices.DeleteFunc(found, func(d diag.Diagnostic) bool {
			return d.Severity == diag.Error && slices.Contains(known, d)
		})
	}
	found = append(found, k.findShared(object, old)...)
	for _, d := range found.Warnings() {
		warnings = append(warnings, d.Path+": "+withHint(d))
	}
	var problems field.ErrorList
	for _, d := range found.Errors() {
		problems = append(problems, &field.Error{
			Type: field.ErrorTypeInvalid, Field: d.Path, BadValue: field.OmitValueType{}, Detail: withHint(d),
		})
	}
	if len(problems) > 0 {
		return warnings, apierrors.NewInvalid(schema.GroupKind{Group: v1alpha1.Group, Kind: spec.Kind}, object.Name, problems)
	}
	return warnings, nil
}

// withHint returns a message with what to do.
func withHint(d diag.Diagnostic) string {
	if d.Hint == "" {
		return d.Message
	}
	return d.Message + "; " + d.Hint
}

// findProblems returns the problems of a Cluster that no other object can solve.
func (k *Checker) findProblems(c *v1alpha1.Cluster) diag.List {
	complete := c.DeepCopy()
	complete.APIVersion, complete.Kind = v1alpha1.APIVersion, spec.Kind
	spec.SetDefaults(complete, spec.DefaultOptions{KubernetesVersion: k.DefaultVersion})
	found := spec.Validate(complete, spec.ValidateOptions{Supported: k.Supported})
	found = append(found, apicheck.CheckObject(c)...)
	found.Sort()
	return found
}

// findShared returns the hosts that a change adds, and that are in another Cluster.
func (k *Checker) findShared(object, old *v1alpha1.Cluster) (out diag.List) {
	if k.Claims == nil || !k.Claims.IsComplete() {
		return nil
	}
	claim := hostclaims.New(object)
	if old != nil {
		for key := range hostclaims.New(old).Hosts {
			delete(claim.Hosts, key)
		}
	}
	known := map[string]bool{}
	for _, s := range k.Claims.FindShared(claim) {
		if !known[s.Key] {
			out = append(out, s.Describe(object))
		}
		known[s.Key] = true
	}
	return out
}

// CheckNamespaceDeletion returns why a namespace cannot be deleted. Its deletion would remove the Secrets and the
// records that the deletion of its Clusters needs, and could create no operation.
func (k *Checker) CheckNamespaceDeletion(ctx context.Context, name string) error {
	if k.ListClusters == nil {
		return nil
	}
	clusters, err := k.ListClusters(ctx, name)
	if err != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the Clusters of namespace %s cannot be read: %v; try again", name, err))
	}
	var protected, removed []string
	for i := range clusters {
		switch c := &clusters[i]; {
		case c.IsProtected():
			protected = append(protected, c.Name)
		case c.Spec.DeletionPolicy == v1alpha1.DeletionDelete:
			removed = append(removed, c.Name)
		}
	}
	var reasons []string
	if len(protected) > 0 {
		reasons = append(reasons, "its Clusters "+strings.Join(protected, ", ")+" are protected against deletion: remove the annotation "+
			v1alpha1.AnnotationProtection)
	}
	if len(removed) > 0 {
		reasons = append(reasons, "its Clusters "+strings.Join(removed, ", ")+
			" have spec.deletionPolicy Delete: delete them first, or set the policy to Retain")
	}
	if len(reasons) == 0 {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: "namespace " + name + " cannot be deleted: " + strings.Join(reasons, "; "),
	}}
}
