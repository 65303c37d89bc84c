package controlplane

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec"
)

// hostAddressPlugin is the name of the admission plugin for addresses of hosts.
const hostAddressPlugin = "SlipwayHostAddress"

// A hostAddressCheck refuses Clusters in which two hosts have one address. A rule in the
// definition cannot check this: for 1,000 hosts it costs more than the API server allows.
type hostAddressCheck struct{ *admission.Handler }

// registerHostAddressCheck adds the check to the admission plugins of an API server.
func registerHostAddressCheck(plugins *admission.Plugins) {
	plugins.Register(hostAddressPlugin, func(io.Reader) (admission.Interface, error) {
		return hostAddressCheck{admission.NewHandler(admission.Create, admission.Update)}, nil
	})
}

// Validate checks the addresses of a Cluster. Its fields have the types of the schema.
func (hostAddressCheck) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != (schema.GroupResource{Group: v1alpha1.Group, Resource: "clusters"}) || a.GetSubresource() != "" {
		return nil
	}
	object, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	problems, err := findSharedAddresses(object.Object)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("reading the hosts of the Cluster: %v", err))
	}
	if len(problems) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: v1alpha1.Group, Kind: "Cluster"}, a.GetName(), problems)
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
