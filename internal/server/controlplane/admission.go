package controlplane

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"

	"slipway.dev/slipway/api/v1alpha1"
	slipwayadmission "slipway.dev/slipway/internal/admission"
	"slipway.dev/slipway/internal/spec"
)

// clusterPlugin is the name of the admission plugin for Clusters and their namespaces.
const clusterPlugin = "SlipwayCluster"

// A clusterCheck refuses Clusters in which two hosts have one address. A rule in the definition cannot check this: for
// 1,000 hosts it costs more than the API server allows. With a checker, it also has all rules of the command line.
type clusterCheck struct {
	*admission.Handler
	checker *slipwayadmission.Checker
}

// registerClusterCheck adds the check to the admission plugins of an API server. checker may be nil.
func registerClusterCheck(plugins *admission.Plugins, checker *slipwayadmission.Checker) {
	plugins.Register(clusterPlugin, func(io.Reader) (admission.Interface, error) {
		return clusterCheck{admission.NewHandler(admission.Create, admission.Update, admission.Delete), checker}, nil
	})
}

// Validate checks a change of a Cluster, or the deletion of a namespace.
func (k clusterCheck) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	switch {
	case a.GetSubresource() != "":
		return nil
	case a.GetResource().GroupResource() == corev1.Resource("namespaces"):
		if k.checker == nil || a.GetOperation() != admission.Delete {
			return nil
		}
		return k.checker.CheckNamespaceDeletion(ctx, a.GetName())
	case a.GetResource().GroupResource() != (schema.GroupResource{Group: v1alpha1.Group, Resource: "clusters"}):
		return nil
	case a.GetOperation() == admission.Delete:
		return nil
	}
	object, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	if k.checker == nil {
		return checkAddresses(object, a.GetName())
	}
	old, _ := a.GetOldObject().(*unstructured.Unstructured) // nil for a new object
	return k.checkCluster(ctx, object, old)
}

// checkCluster checks a Cluster with all rules.
func (k clusterCheck) checkCluster(ctx context.Context, object, old *unstructured.Unstructured) error {
	is, was := new(v1alpha1.Cluster), (*v1alpha1.Cluster)(nil)
	if err := readCluster(object, is); err != nil {
		return err
	}
	if old != nil {
		was = new(v1alpha1.Cluster)
		if err := readCluster(old, was); err != nil {
			return err
		}
	}
	warnings, err := k.checker.CheckCluster(is, was)
	for _, text := range warnings {
		warning.AddWarning(ctx, "", text)
	}
	return err
}

// readCluster decodes a Cluster. Its fields have the types of the schema.
func readCluster(object *unstructured.Unstructured, into *v1alpha1.Cluster) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("reading the Cluster: %v", err))
	}
	return nil
}

// checkAddresses refuses a Cluster in which two hosts have one address.
func checkAddresses(object *unstructured.Unstructured, name string) error {
	problems, err := findSharedAddresses(object.Object)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("reading the hosts of the Cluster: %v", err))
	}
	if len(problems) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: v1alpha1.Group, Kind: "Cluster"}, name, problems)
	}
	return nil
}

// findSharedAddresses returns the hosts with the address of an earlier host, by the rule that
// the command line has too.
func findSharedAddresses(object map[string]any) (out field.ErrorList, err error) {
	at := field.NewPath("spec", "hosts")
	part := map[string]any{}
	if all, ok := object["spec"].(map[string]any); ok {
		part = map[string]any{"hosts": all["hosts"], "ssh": all["ssh"]}
	}
	cluster := &v1alpha1.Cluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"spec": part}, cluster); err != nil {
		return nil, err
	}
	for _, s := range spec.FindSharedAddresses(cluster) {
		out = append(out, field.Invalid(at.Index(s.Host).Child(s.Field), s.Text,
			fmt.Sprintf("host %s has the same address; %s", cluster.Spec.Hosts[s.Earlier].Name, spec.SharedAddressHint)))
	}
	return out, nil
}
