package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"slipway.dev/slipway/api/crds"
	"slipway.dev/slipway/api/policies"
	"slipway.dev/slipway/api/roles"
	"slipway.dev/slipway/api/v1alpha1"
)

const (
	// SystemNamespace is the namespace of the server's own objects.
	SystemNamespace = "slipway-system"
	// fieldManager owns the fields of the objects that the server applies.
	fieldManager = "slipwayd"
	// applyTime limits the time for all definitions.
	applyTime = time.Minute
)

// systemNamespace is the namespace of the server's own objects.
const systemNamespace = "{apiVersion: v1, kind: Namespace, metadata: {name: " + SystemNamespace + "}}"

// applyDefinitions applies the definitions of the kinds of Slipway, the roles and the policies,
// and waits until the kinds are served.
func (s *Server) applyDefinitions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, applyTime)
	defer cancel()
	client, err := dynamic.NewForConfig(s.loopback)
	if err != nil {
		return err
	}
	for _, text := range [][]byte{[]byte(systemNamespace), crds.Clusters, crds.Operations} {
		if err := applyAll(ctx, client, text); err != nil {
			return fmt.Errorf("applying the definitions of Slipway's kinds: %w", err)
		}
	}
	for _, text := range [][]byte{roles.Roles, policies.Operations, policies.Secrets} {
		if err := applyAll(ctx, client, text); err != nil {
			return fmt.Errorf("applying the roles and policies of Slipway: %w", err)
		}
	}
	for _, resource := range []string{"clusters", "operations"} {
		if err := waitUntilServed(ctx, client, resource); err != nil {
			return err
		}
	}
	return nil
}

// applyAll applies the objects of a YAML text. The server owns all their fields: other values
// are overwritten.
func applyAll(ctx context.Context, client dynamic.Interface, text []byte) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(object.Object) == 0 {
			continue
		}
		if err := applyObject(ctx, client, object); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

// applyObject applies one object. It tries again while the API server starts: some resources
// are refused until the server has read its own policies.
func applyObject(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured) error {
	resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	var last error
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var at dynamic.ResourceInterface = client.Resource(resource)
		if namespace := object.GetNamespace(); namespace != "" {
			at = client.Resource(resource).Namespace(namespace)
		}
		_, last = at.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		if apierrors.IsInvalid(last) || apierrors.IsBadRequest(last) {
			return false, last
		}
		if isWithoutRoom(last) {
			// An earlier start has applied the object. Reads and deletions must work.
			_, last = at.Get(ctx, object.GetName(), metav1.GetOptions{})
		}
		return last == nil, nil
	})
	if last != nil && err != nil {
		return last
	}
	return err
}

// isWithoutRoom reports whether a write was refused because the disk or the database is full.
func isWithoutRoom(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInsufficientStorage
}

// waitUntilServed waits until objects of a resource can be listed.
func waitUntilServed(ctx context.Context, client dynamic.Interface, resource string) error {
	at := client.Resource(schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: resource})
	var last error
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, last = at.List(ctx, metav1.ListOptions{Limit: 1})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("resource %s.%s is not served: %w", resource, v1alpha1.Group, errors.Join(err, last))
	}
	return nil
}
