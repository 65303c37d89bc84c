// Package clusterstatus writes parts of the status of a Cluster. Each part belongs to one controller.
package clusterstatus

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
)

// Apply writes the fields of part, in the form of v1alpha1.ClusterStatus, with server-side apply. manager owns them
// afterwards, and loses the fields that an earlier part had. A Cluster that was deleted is not an error.
func Apply(ctx context.Context, to client.Client, c *v1alpha1.Cluster, manager string, part any) error {
	text, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.APIVersion, "kind": "Cluster",
		"metadata": map[string]any{"name": c.Name, "namespace": c.Namespace, "uid": c.UID}, "status": part,
	})
	if err != nil {
		return err
	}
	object := new(unstructured.Unstructured)
	if err := object.UnmarshalJSON(text); err != nil {
		return err
	}
	apply := client.ApplyConfigurationFromUnstructured(object)
	return client.IgnoreNotFound(to.Status().Apply(ctx, apply, client.FieldOwner(manager), client.ForceOwnership))
}
