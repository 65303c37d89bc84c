package controlplane

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

// TestTokenGetter_FindsObjectsWithoutInformers has informers that have not started.
func TestTokenGetter_FindsObjectsWithoutInformers(t *testing.T) {
	named := metav1.ObjectMeta{Namespace: "space", Name: "new"}
	g := newTokenGetter(informers.NewSharedInformerFactory(
		fake.NewClientset(&corev1.ServiceAccount{ObjectMeta: named}, &corev1.Secret{ObjectMeta: named}), 0))
	if got, err := g.GetServiceAccount(t.Context(), "space", "new"); err != nil || got.Name != "new" {
		t.Errorf("the new service account: %v, %v", got, err)
	}
	if got, err := g.GetSecret(t.Context(), "space", "new"); err != nil || got.Name != "new" {
		t.Errorf("the new Secret: %v, %v", got, err)
	}
	if _, err := g.GetServiceAccount(t.Context(), "space", "other"); !apierrors.IsNotFound(err) {
		t.Errorf("a missing service account: %v", err)
	}
}
