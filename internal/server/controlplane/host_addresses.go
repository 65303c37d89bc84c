package controlplane

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"slipway.dev/slipway/api/v1alpha1"
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
	if problems := findSharedAddresses(object.Object); len(problems) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: v1alpha1.Group, Kind: "Cluster"}, a.GetName(), problems)
	}
	return nil
}

// findSharedAddresses returns the hosts with the address of an earlier host. Hosts may share an
// address for SSH if their ports differ.
func findSharedAddresses(cluster map[string]any) (out field.ErrorList) {
	list, _, _ := unstructured.NestedFieldNoCopy(cluster, "spec", "hosts")
	hosts, _ := list.([]any)
	shared, _, _ := unstructured.NestedInt64(cluster, "spec", "ssh", "port")
	earlier := map[string]string{} // names by address
	for i, entry := range hosts {
		host, _ := entry.(map[string]any)
		name, _ := host["name"].(string)
		address, _ := host["address"].(string)
		port, found, _ := unstructured.NestedInt64(host, "ssh", "port")
		if !found {
			port = shared
		}
		internal, _ := host["internalAddress"].(string)
		for _, c := range []struct{ child, key, value string }{
			{"address", fmt.Sprintf("address %s %d", address, port), address},
			{"internalAddress", "internal " + internal, internal},
		} {
			if other, taken := earlier[c.key]; taken && c.value != "" {
				out = append(out, field.Invalid(field.NewPath("spec", "hosts").Index(i).Child(c.child), c.value,
					fmt.Sprintf("host %s has the same address; give each host its own, or set ssh.port and internalAddress of each", other)))
			}
			earlier[c.key] = name
		}
	}
	return out
}
