package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// BootstrapTokens is a client for the tokens with which nodes join.
type BootstrapTokens struct{ *connection }

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

const tokenType = "bootstrap.kubernetes.io/token"

// A BootstrapToken lets nodes join; see the Kubernetes documentation,
// "Authenticating with Bootstrap Tokens".
type BootstrapToken struct {
	ID, Secret  string // "abcdef", "0123456789abcdef"
	Description string
	Validity    time.Duration
}

// Create creates a token.
func (c BootstrapTokens) Create(ctx context.Context, t BootstrapToken) error {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": tokenType,
		"metadata": map[string]any{"name": "bootstrap-token-" + t.ID, "namespace": metav1.NamespaceSystem},
		"stringData": map[string]any{
			"token-id":                       t.ID,
			"token-secret":                   t.Secret,
			"description":                    t.Description,
			"expiration":                     time.Now().Add(t.Validity).UTC().Format(time.RFC3339),
			"usage-bootstrap-authentication": "true",
			"auth-extra-groups":              "system:bootstrappers:kubeadm:default-node-token",
		},
	}}
	_, err := c.dynamic.Resource(secrets).Namespace(metav1.NamespaceSystem).Create(ctx, u, metav1.CreateOptions{FieldManager: FieldManager})
	if err != nil {
		return c.describeError(err)
	}
	return nil
}

// List returns the ids of the tokens with a description.
func (c BootstrapTokens) List(ctx context.Context, description string) ([]string, error) {
	list, err := c.dynamic.Resource(secrets).Namespace(metav1.NamespaceSystem).List(ctx,
		metav1.ListOptions{FieldSelector: "type=" + tokenType})
	if err != nil {
		return nil, c.describeError(err)
	}
	var ids []string
	for _, u := range list.Items {
		data, err := secretData(&u)
		if err != nil {
			return nil, fmt.Errorf("reading Secret %s: %w", u.GetName(), err)
		}
		if data["description"] == description {
			ids = append(ids, data["token-id"])
		}
	}
	return ids, nil
}

// Delete deletes a token. A missing token is not an error.
func (c BootstrapTokens) Delete(ctx context.Context, id string) error {
	err := c.dynamic.Resource(secrets).Namespace(metav1.NamespaceSystem).Delete(ctx, "bootstrap-token-"+id, metav1.DeleteOptions{})
	if err != nil && !isNotFound(err) {
		return c.describeError(err)
	}
	return nil
}

func secretData(u *unstructured.Unstructured) (map[string]string, error) {
	s := &corev1.Secret{}
	if err := fromUnstructured(u, s); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for k, v := range s.Data {
		out[k] = string(v)
	}
	return out, nil
}
