package addonsource

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Ref identifies an object in the cluster, independent of its API version.
type Ref struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// RefOf returns the Ref of an object.
func RefOf(o *unstructured.Unstructured) Ref {
	return Ref{Group: o.GroupVersionKind().Group, Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// ToObject returns an object to request, in a version of its API.
func (r Ref) ToObject(version string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: r.Group, Version: version, Kind: r.Kind})
	o.SetNamespace(r.Namespace)
	o.SetName(r.Name)
	return o
}

// CascadingKinds lists the kinds of objects whose deletion also deletes other things: the
// content of a namespace, the objects of a kind, the data of a volume.
func CascadingKinds() []string {
	return []string{"Namespace", "PersistentVolumeClaim", "PersistentVolume", "CustomResourceDefinition"}
}

// scopes has the cluster-scoped kinds that add-ons define.
type scopes map[schema.GroupKind]bool

// isClusterScoped reports whether an object has no namespace, because of its Kubernetes kind or a
// kind that an add-on defines.
func (s scopes) isClusterScoped(o *unstructured.Unstructured) bool {
	gk := o.GroupVersionKind().GroupKind()
	if is, ok := s[gk]; ok {
		return is
	}
	switch gk.Group {
	case "":
		return gk.Kind == "Namespace" || gk.Kind == "Node" || gk.Kind == "PersistentVolume"
	case "rbac.authorization.k8s.io":
		return gk.Kind == "ClusterRole" || gk.Kind == "ClusterRoleBinding"
	case "storage.k8s.io":
		return gk.Kind != "CSIStorageCapacity"
	case "apiextensions.k8s.io", "apiregistration.k8s.io", "admissionregistration.k8s.io", "scheduling.k8s.io", "node.k8s.io",
		"flowcontrol.apiserver.k8s.io", "certificates.k8s.io", "internal.apiserver.k8s.io", "storagemigration.k8s.io":
		return true
	case "networking.k8s.io":
		return gk.Kind == "IngressClass" || gk.Kind == "ServiceCIDR" || gk.Kind == "IPAddress"
	case "resource.k8s.io":
		return gk.Kind == "DeviceClass" || gk.Kind == "ResourceSlice"
	}
	return false
}

// learnScopes records the kinds that objects define.
func (w *loadRun) learnScopes(objects []*unstructured.Unstructured) {
	for _, o := range objects {
		if (Ref{Group: o.GroupVersionKind().Group, Kind: o.GetKind()}) != (Ref{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}) {
			continue
		}
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		scope, _, _ := unstructured.NestedString(o.Object, "spec", "scope")
		w.scopes[schema.GroupKind{Group: group, Kind: kind}] = scope == "Cluster"
		versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
		for _, v := range versions {
			if m, ok := v.(map[string]any); ok && m["served"] == true {
				name, _ := m["name"].(string)
				w.apis[group+"/"+name], w.apis[group+"/"+name+"/"+kind] = true, true
			}
		}
	}
}
