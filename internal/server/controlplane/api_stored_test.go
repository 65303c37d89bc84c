package controlplane_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/api/crds"
	"slipway.dev/slipway/api/policies"
	"slipway.dev/slipway/api/roles"
	"slipway.dev/slipway/internal/server/controlplane"
)

// TestDefinitions_AreStoredAsWritten reads the definitions back. If a webhook refuses one, the
// server compares it with the stored one.
func TestDefinitions_AreStoredAsWritten(t *testing.T) {
	client := newDynamic(t, server.Admin)
	for _, text := range [][]byte{
		crds.Clusters, crds.Operations, crds.OperationLogs, roles.Roles,
		policies.Clusters, policies.Operations, policies.Secrets,
	} {
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			object := &unstructured.Unstructured{}
			if err := decoder.Decode(object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if len(object.Object) == 0 {
				continue
			}
			resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
			stored, err := client.Resource(resource).Get(t.Context(), object.GetName(), metav1.GetOptions{})
			if err != nil || !controlplane.HasFields(stored.Object, object.Object) {
				t.Errorf("%s %s is stored in another form: %v", object.GetKind(), object.GetName(), err)
			}
		}
	}
}

// TestServiceAccount_UsesTokenAtOnce uses a token before the informers of the server can have
// its service account.
func TestServiceAccount_UsesTokenAtOnce(t *testing.T) {
	accounts := server.Client(t).CoreV1().ServiceAccounts(server.NewNamespace(t))
	for i := range 20 {
		name := fmt.Sprintf("account-%d", i)
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := accounts.Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		config := rest.AnonymousClientConfig(server.Admin)
		config.BearerToken = token.Status.Token
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		review := &authenticationv1.SelfSubjectReview{}
		if _, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), review, metav1.CreateOptions{}); err != nil {
			t.Errorf("service account %d: %v", i, err)
		}
	}
}
