package controlplane_test

import (
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/internal/server/controlplane"
)

// TestRobustWebhook_DoesNotStopNextStart has a webhook without a server, which refuses each change
// of the server's own objects.
func TestRobustWebhook_DoesNotStopNextStart(t *testing.T) {
	c := startChild(t, filepath.Join(t.TempDir(), "data"), "", serverOptions{})
	// The next start applies this object again, as after an upgrade.
	_, err := c.client(t).CoreV1().Namespaces().Patch(t.Context(), controlplane.SystemNamespace, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"slipway.dev/definition-digest":null}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	url, none := "https://"+freeAddress(t), admissionv1.SideEffectClassNone
	webhook := admissionv1.ValidatingWebhook{
		Name: "broken.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionv1.WebhookClientConfig{URL: &url},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.OperationAll},
			Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
		}},
	}
	object := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Webhooks: []admissionv1.ValidatingWebhook{webhook},
	}
	configurations := c.client(t).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := configurations.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.stop(t)
	again := startChild(t, c.data, "", serverOptions{})
	if !strings.Contains(again.log.String(), "the stored one is used") {
		t.Errorf("the log does not name the refused object:\n%s", again.log)
	}
	configurations = again.client(t).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if err := configurations.Delete(t.Context(), "broken", metav1.DeleteOptions{}); err != nil {
		t.Errorf("the user cannot delete the webhook: %v", err)
	}
	again.stop(t)
}
