package kube

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Trust is a client for the places in a cluster that hold CAs, certificates and service
// account tokens. A rotation looks there for old ones.
type Trust struct{ *connection }

// rootCA is the ConfigMap of every namespace with the CA for the API servers.
const rootCA = "kube-root-ca.crt"

// lookedAtOnce is the number of objects per list request.
const lookedAtOnce = 200

// maySay are the kinds of objects that may contain trusted CAs.
var maySay = []schema.GroupVersionResource{
	configMaps, secrets, validating, mutating,
	{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
}

// FindObjectsWithText returns the objects with a text, plain or base64-encoded, for which says returns
// true: "ConfigMap default/trust", sorted. It ignores kinds that the API server does not
// serve.
func (c Trust) FindObjectsWithText(ctx context.Context, says func(text []byte) bool) ([]string, error) {
	return c.objectsWithText(ctx, maySay, says)
}

// FindConfigWithText returns only ConfigMaps and Secrets with a text. The other kinds contain
// trusted CAs, but no certificates that a client or server presents.
func (c Trust) FindConfigWithText(ctx context.Context, says func(text []byte) bool) ([]string, error) {
	return c.objectsWithText(ctx, []schema.GroupVersionResource{configMaps, secrets}, says)
}

func (c Trust) objectsWithText(ctx context.Context, kinds []schema.GroupVersionResource,
	says func(text []byte) bool,
) (out []string, err error) {
	for _, kind := range kinds {
		err := c.forEachObject(ctx, kind, func(u *unstructured.Unstructured) error {
			of := objectName(u)
			unstructured.RemoveNestedField(u.Object, "metadata")
			if containsText(u.Object, says) {
				out = append(out, of)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(out)
	return out, nil
}

// containsText reports whether says returns true for a text below value, plain or decoded.
func containsText(value any, says func([]byte) bool) bool {
	switch v := value.(type) {
	case string:
		if says([]byte(v)) {
			return true
		}
		raw, err := base64.StdEncoding.DecodeString(v)
		return err == nil && says(raw)
	case []any:
		return slices.ContainsFunc(v, func(child any) bool { return containsText(child, says) })
	case map[string]any:
		for _, child := range v {
			if containsText(child, says) {
				return true
			}
		}
	}
	return false
}

// forEachObject calls do for all objects of a resource, page by page. It ignores a resource that the
// API server does not serve.
func (c Trust) forEachObject(ctx context.Context, kind schema.GroupVersionResource, do func(*unstructured.Unstructured) error) error {
	for more := ""; ; {
		list, err := c.dynamic.Resource(kind).List(ctx, metav1.ListOptions{Limit: lookedAtOnce, Continue: more})
		if isNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("listing %s: %w", kind.Resource, c.describeError(err))
		}
		for i := range list.Items {
			if err := do(&list.Items[i]); err != nil {
				return err
			}
		}
		if more = list.GetContinue(); more == "" {
			return nil
		}
	}
}

// WaitRootCAs waits until the controller manager has written the wanted CA to every
// namespace and to every service account token in a Secret. Only ctx limits the time.
func (c Trust) WaitRootCAs(ctx context.Context, wanted func(text []byte) bool, progress func(string)) error {
	err := c.waitUntil(ctx, withProgress(progress, func(ctx context.Context) (string, error) {
		other, err := c.ListOtherRootCAs(ctx, wanted)
		if err == nil && len(other) > 0 {
			return fmt.Sprintf("the controller manager has not updated %s and %d others yet", other[0], len(other)-1), nil
		}
		return "", err
	}))
	if err != nil {
		return fmt.Errorf("waiting for the CA in namespaces and tokens: %w", err)
	}
	return nil
}

// ListOtherRootCAs returns the objects that WaitRootCAs waits for, sorted.
func (c Trust) ListOtherRootCAs(ctx context.Context, wanted func(text []byte) bool) (out []string, err error) {
	list, err := c.dynamic.Resource(configMaps).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + rootCA})
	if err != nil {
		return nil, fmt.Errorf("listing ConfigMaps: %w", c.describeError(err))
	}
	for i := range list.Items {
		cm := &corev1.ConfigMap{}
		if err := fromUnstructured(&list.Items[i], cm); err != nil {
			return nil, err
		}
		if cm.Name == rootCA && !wanted([]byte(cm.Data[corev1.ServiceAccountRootCAKey])) {
			out = append(out, "ConfigMap "+cm.Namespace+"/"+cm.Name)
		}
	}
	tokens, err := c.ListTokenSecrets(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range tokens {
		if !wanted(t.CA) {
			out = append(out, "Secret "+t.Namespace+"/"+t.Name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// A TokenSecret is a service account token without expiry, from a Secret.
type TokenSecret struct {
	Namespace, Name string
	Token           string
	CA              []byte // the CA for the API servers
}

// ListTokenSecrets returns all service account tokens without expiry, sorted.
func (c Trust) ListTokenSecrets(ctx context.Context) ([]TokenSecret, error) {
	list, err := c.dynamic.Resource(secrets).List(ctx,
		metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)})
	if err != nil {
		return nil, fmt.Errorf("listing service account tokens: %w", c.describeError(err))
	}
	var out []TokenSecret
	for i := range list.Items {
		s := &corev1.Secret{}
		if err := fromUnstructured(&list.Items[i], s); err != nil {
			return nil, err
		}
		out = append(out, TokenSecret{s.Namespace, s.Name, string(s.Data[corev1.ServiceAccountTokenKey]), s.Data[corev1.ServiceAccountRootCAKey]})
	}
	slices.SortFunc(out, func(a, b TokenSecret) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out, nil
}
