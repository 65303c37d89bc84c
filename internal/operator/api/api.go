// Package api connects commands to an API that has Cluster objects: of a management server, or of a
// cluster with the operator.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/operator/manifests"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	idNoDefinitions = "api-without-clusters"
	idNoNamespace   = "api-namespace-missing"
)

// fieldManager owns the fields that commands write.
const fieldManager = "slipway"

// LoadConfig returns the client configuration for a context of a kubeconfig, and its namespace.
// "": the same as kubectl.
func LoadConfig(kubeconfig, context string) (config *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	loading := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context})
	if config, err = loading.ClientConfig(); err == nil {
		namespace, _, err = loading.Namespace()
	}
	if err != nil {
		return nil, "", diag.Refuse(manifests.IDFlag, fmt.Sprintf("reading the kubeconfig: %v", err),
			"set --kubeconfig and --context: kubectl config get-contexts lists the contexts")
	}
	config.QPS = -1 // the API server limits its clients
	return config, namespace, nil
}

// Objects are the Cluster objects of one namespace.
type Objects struct {
	clusters, secrets dynamic.ResourceInterface
	namespaces        dynamic.ResourceInterface
	namespace, url    string
}

// New returns the objects of a namespace. It sends no request.
func New(config *rest.Config, namespace string) (*Objects, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kind := func(group, version, resource string) dynamic.NamespaceableResourceInterface {
		return client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
	}
	return &Objects{
		clusters: kind(v1alpha1.Group, v1alpha1.Version, "clusters").Namespace(namespace), namespaces: kind("", "v1", "namespaces"),
		secrets: kind("", "v1", "secrets").Namespace(namespace), namespace: namespace, url: config.Host,
	}, nil
}

// Check returns an error if the API has no Cluster objects, or no such namespace. A user without
// the right to read the namespace finds out when an object is created.
func (o *Objects) Check(ctx context.Context) error {
	_, err := o.clusters.List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) {
		return diag.Refuse(idNoDefinitions, "the API "+o.url+" has no Cluster objects",
			"select another context, or install the operator: slipway operator install")
	}
	if err != nil {
		return fmt.Errorf("reading Clusters: %w", err)
	}
	if _, err := o.namespaces.Get(ctx, o.namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return diag.Refuse(idNoNamespace, "the API "+o.url+" has no namespace "+o.namespace,
			"select another one with --namespace, or create it: kubectl create namespace "+o.namespace)
	} else if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("reading the namespace: %w", err)
	}
	return nil
}

// Load returns the object of a cluster, nil if it does not exist.
func (o *Objects) Load(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	found, err := o.clusters.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Cluster %s: %w", name, err)
	}
	return convertCluster(found)
}

// Save creates the object of a cluster, or replaces the version that it was loaded from. It returns the saved one. A field
// that the API does not know is an error: the API can be of an earlier version than this program.
func (o *Objects) Save(ctx context.Context, c *v1alpha1.Cluster) (*v1alpha1.Cluster, error) {
	object, err := convertObject(c)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(object.Object, "status")
	var saved *unstructured.Unstructured
	if c.ResourceVersion == "" {
		saved, err = o.clusters.Create(ctx, object, metav1.CreateOptions{
			FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict,
		})
	} else {
		saved, err = o.clusters.Update(ctx, object, metav1.UpdateOptions{
			FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict,
		})
	}
	if err != nil {
		return nil, err
	}
	return convertCluster(saved)
}

// SaveFiles creates or replaces a Secret that the API deletes with its Cluster.
func (o *Objects) SaveFiles(ctx context.Context, owner *v1alpha1.Cluster, name string, files map[string][]byte) error {
	object, err := convertObject(&corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: v1alpha1.APIVersion, Kind: "Cluster", Name: owner.Name, UID: owner.UID},
		}},
		Data: files,
	})
	if err != nil {
		return err
	}
	_, err = o.secrets.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	is, err := o.secrets.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if owners := is.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != owner.UID {
		return errors.New("it exists already, and is not of this Cluster: rename or delete it")
	}
	object.SetResourceVersion(is.GetResourceVersion())
	_, err = o.secrets.Update(ctx, object, metav1.UpdateOptions{FieldManager: fieldManager})
	return err
}

// Patch changes the object of a cluster with a JSON merge patch.
func (o *Objects) Patch(ctx context.Context, name string, patch []byte) error {
	_, err := o.clusters.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	return err
}

func convertObject(object any) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	return &unstructured.Unstructured{Object: fields}, err
}

// convertCluster decodes an object. Its values can have any type of JSON.
func convertCluster(object *unstructured.Unstructured) (*v1alpha1.Cluster, error) {
	text, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	out := new(v1alpha1.Cluster)
	return out, json.Unmarshal(text, out)
}
