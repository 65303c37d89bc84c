package controlplane_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"slipway.dev/slipway/api/crds/crdstest"
)

// TestRules_HoldOnServer sends good and bad objects of each rule of the definitions.
func TestRules_HoldOnServer(t *testing.T) {
	t.Parallel()
	client, namespace := newDynamic(t, server.Admin), server.NewNamespace(t)
	for _, kind := range []struct {
		name  string
		at    dynamic.ResourceInterface
		cases []crdstest.Case
	}{
		{"clusters", client.Resource(clusterResource).Namespace(namespace), crdstest.ClusterCases(t)},
		{"operations", client.Resource(operationResource).Namespace(namespace), crdstest.OperationCases(t, 10)},
		{"operationlogs", client.Resource(operationLogResource).Namespace(namespace), crdstest.OperationLogCases(t)},
	} {
		for _, c := range kind.cases {
			t.Run(kind.name+"/"+c.Name, func(t *testing.T) {
				err := sendCase(t, kind.at, c)
				if c.Field == "" && err != nil {
					t.Errorf("a good object is refused: %v", err)
				}
				if c.Field != "" && (!apierrors.IsInvalid(err) || !hasField(err, c.Field)) {
					t.Errorf("got %v, want an error about %s", err, c.Field)
				}
			})
		}
	}
}

// sendCase creates the object of a case, or changes it, and returns the error of that request.
// The object is deleted.
func sendCase(t *testing.T, at dynamic.ResourceInterface, c crdstest.Case) error {
	t.Helper()
	object := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(c.New)}
	defer deleteNow(t, at, object.GetName())
	if c.Old == nil {
		_, err := at.Create(t.Context(), object, metav1.CreateOptions{})
		return err
	}
	old := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(c.Old)}
	made, err := at.Create(t.Context(), old, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating the object: %v", err)
	}
	if status, ok := c.Old["status"]; ok {
		made.Object["status"] = status
		if made, err = at.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("writing the status: %v", err)
		}
	}
	object.SetResourceVersion(made.GetResourceVersion())
	_, err = at.Update(t.Context(), object, metav1.UpdateOptions{})
	return err
}
