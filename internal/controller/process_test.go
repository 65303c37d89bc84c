package controller

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/admission"
	"slipway.dev/slipway/internal/hostclaims"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/operator/manifests"
)

// A fixedCertificate is a certificate for 127.0.0.1.
type fixedCertificate struct{ tls.Certificate }

func (c fixedCertificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return &c.Certificate, nil
}

func (fixedCertificate) Ready() error { return nil }

func (fixedCertificate) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// newCertificate returns a certificate, and its CA.
func newCertificate(t *testing.T) (Certificate, []byte) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return fixedCertificate{s.TLS.Certificates[0]}, ca
}

// freePort returns a port at which nothing listens.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // of TCP
}

// startProcess starts a process of an operator, and returns its addresses. stop ends it.
func (w *world) startProcess(certificate Certificate) (webhook int, probes string, stop func()) {
	w.t.Helper()
	webhook, probes = freePort(w.t), fmt.Sprintf("127.0.0.1:%d", freePort(w.t))
	w.process = &Process{
		Namespace: w.namespace, ProbeAddress: probes, MetricsAddress: "0",
		Webhook:   &Webhook{Host: "127.0.0.1", Port: webhook, Path: manifests.WebhookPath, Certificate: certificate},
		Admission: &admission.Checker{Claims: hostclaims.NewIndex(time.Now), DefaultVersion: older},
	}
	w.sharing = &Sharing{Namespace: w.namespace, Group: manifests.MembersGroup, Identity: manifests.NewIdentity("pod")}
	w.start()
	w.eventually(func() string {
		r, err := http.Get("http://" + probes + "/readyz")
		if err != nil {
			return err.Error()
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return "the process is not ready: " + r.Status
		}
		return ""
	})
	return webhook, probes, w.stop
}

// waitForMembers waits until as many processes as given have a Lease, and returns their names.
func (w *world) waitForMembers(n int) (identities []string) {
	w.t.Helper()
	w.eventually(func() string {
		leases, err := server.Client(w.t).CoordinationV1().Leases(w.namespace).List(w.t.Context(),
			metav1.ListOptions{LabelSelector: v1alpha1.LabelMembers})
		if err != nil {
			return err.Error()
		}
		identities = nil
		for i := range leases.Items {
			identities = append(identities, ptr.Deref(leases.Items[i].Spec.HolderIdentity, ""))
		}
		if len(identities) != n {
			return fmt.Sprintf("processes with a Lease: %q, want %d", identities, n)
		}
		return ""
	})
	return identities
}

// TestProcess_OtherServesWebhookAndTakesCluster runs two processes that share the clusters. Both serve the webhook. After
// the end of one, the other one has the cluster.
func TestProcess_OtherServesWebhookAndTakesCluster(t *testing.T) {
	t.Parallel()
	w := prepareWorld(t, "cp1", "w1")
	w.grantNamespacedRights()
	certificate, ca := newCertificate(t)
	_, _, stopFirst := w.startProcess(certificate)
	first := w.waitForMembers(1)[0]
	port, _, _ := w.startProcess(certificate)
	w.waitForMembers(2)
	w.createReady("cp1")
	w.requireStates("create Succeeded")

	w.useWebhook(port, ca)
	unchecked.Store(w.namespace, true) // by the API server itself
	w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionDelete })
	err := w.deleteNamespace()
	if err == nil || !strings.Contains(err.Error(), "admission webhook") || !strings.Contains(err.Error(), "delete them first") {
		t.Errorf("the webhook of the other process: got %v", err)
	}
	w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionRetain })

	stopFirst()
	if left := w.waitForMembers(1)[0]; left == first {
		t.Errorf("process %s has ended, and its Lease is still there", first)
	}
	w.setHosts("cp1", "w1")
	w.waitForApplied()
	w.requireStates("create Succeeded", "apply Succeeded")
}

// useWebhook makes the API server ask a webhook about the namespace of the world.
func (w *world) useWebhook(port int, ca []byte) {
	w.t.Helper()
	none := admissionregistrationv1.SideEffectClassNone
	configurations := server.Client(w.t).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	made, err := configurations.Create(w.t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "namespaces.slipway.dev", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.namespace}},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: ptr.To(fmt.Sprintf("https://127.0.0.1:%d%s", port, manifests.WebhookPath)), CABundle: ca,
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"namespaces"}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := configurations.Delete(context.WithoutCancel(w.t.Context()), made.Name, metav1.DeleteOptions{}); err != nil {
			w.t.Error(err)
		}
	})
}

// TestDeletion_OfClusterWithControllers deletes the Cluster in which the controllers themselves run: they would remove
// themselves before the end. A restore of its etcd would stop their API.
func TestDeletion_OfClusterWithControllers(t *testing.T) {
	t.Parallel()
	w := prepareWorld(t, "cp1")
	w.grantNamespacedRights()
	certificate, _ := newCertificate(t)
	w.startProcess(certificate)
	w.createReady("cp1")
	w.useOwnCA()
	w.request("restore", operation.RestoreEtcd, nil)
	w.requireReason("restore", "ControllersInCluster")
	w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionDelete })
	w.delete()
	w.waitForCondition("Deleting", metav1.ConditionTrue, "ControllersInCluster")
	w.requireStates("create Succeeded", "etcd-restore Failed")
	w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionRetain })
	w.waitUntilGone()
	if is := w.Hosts["cp1"].AllState(); len(is) == 0 {
		t.Error("the host was reset")
	}
}

// useOwnCA gives the saved kubeconfig of the cluster the CA of the API of the controllers.
func (w *world) useOwnCA() {
	w.t.Helper()
	saved := w.openSaved()
	text, err := saved.Kubeconfigs().Load(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	admin, err := kubeconfig.ParseAdmin(text)
	if err != nil {
		w.t.Fatal(err)
	}
	own := rest.CopyConfig(server.Admin)
	if err := rest.LoadTLSFiles(own); err != nil {
		w.t.Fatal(err)
	}
	admin.CA = own.CAData
	if text, err = admin.Bytes(); err == nil {
		err = saved.Kubeconfigs().Save(w.t.Context(), "prod", text)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}
