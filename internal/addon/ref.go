package addon

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Ref names an object in the cluster, whatever version of its API it is written
// in.
type Ref struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// RefOf names an object.
func RefOf(o *unstructured.Unstructured) Ref {
	return Ref{Group: o.GroupVersionKind().Group, Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Object is one to ask for, in a version of its API.
func (r Ref) Object(version string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: r.Group, Version: version, Kind: r.Kind})
	o.SetNamespace(r.Namespace)
	o.SetName(r.Name)
	return o
}

// Holders are the kinds of objects with which more goes than themselves: what is
// in a namespace, the objects of a kind, the data of a volume.
func Holders() []string {
	return []string{"Namespace", "PersistentVolumeClaim", "PersistentVolume", "CustomResourceDefinition"}
}

// scopes are the kinds of add-ons whose objects belong to the whole cluster.
type scopes map[schema.GroupKind]bool

// whole says that an object has no namespace: its kind is one that Kubernetes has
// so, or that an add-on defines so.
func (s scopes) whole(o *unstructured.Unstructured) bool {
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

// learn takes in the kinds that objects define.
func (w *work) learn(objects []*unstructured.Unstructured) {
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
