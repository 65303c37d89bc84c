package controlplane_test

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestIssue_GivesWorkingKubeconfig uses a new kubeconfig. The user has a name and groups, and
// no rights.
func TestIssue_GivesWorkingKubeconfig(t *testing.T) {
	config := issueUser(t, "jane", "platform", "web")
	user, err := whoAmI(t, config)
	if err != nil {
		t.Fatal(err)
	}
	if user.Username != "jane" {
		t.Errorf("the name is %q", user.Username)
	}
	if diff := cmp.Diff([]string{"platform", "system:authenticated", "web"}, slices.Sorted(slices.Values(user.Groups))); diff != "" {
		t.Error(diff)
	}
	if _, err := newKube(t, config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a user without a role lists namespaces: %v", err)
	}
	block, _ := pem.Decode(config.CertData)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(certificate.NotAfter); left > time.Hour || left < 50*time.Minute {
		t.Errorf("the certificate is valid for %s, want an hour", left)
	}
	requests, err := server.Client(t).CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests.Items {
		if strings.HasPrefix(r.Name, "slipwayd-kubeconfig-") {
			t.Errorf("the request %s is left", r.Name)
		}
	}
}
