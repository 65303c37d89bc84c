package controlplane_test

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/testutil/golden"
)

// newRoleUsers returns a user for each role, when the rights of the roles are in effect.
func newRoleUsers(t *testing.T) (out []caller) {
	t.Helper()
	for _, role := range []string{"viewer", "operator", "admin"} {
		bindRole(t, "slipway-"+role, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "policy-" + role})
		user := caller{role, issueUser(t, "policy-"+role)}
		waitForRole(t, user.config, "slipway-"+role)
		out = append(out, user)
	}
	return out
}

// TestPolicies_RequireRightToEffect requests each kind of operation as a user of each role. The
// requests are not carried out.
func TestPolicies_RequireRightToEffect(t *testing.T) {
	namespace, users := server.NewNamespace(t), newRoleUsers(t)
	var out strings.Builder
	for _, request := range listRequests() {
		fmt.Fprintf(&out, "%s:", request)
		for _, user := range users {
			at := newDynamic(t, user.config).Resource(operationResource).Namespace(namespace)
			object := newOperation(t, "x", "{clusterRef: {name: prod}, "+request+"}")
			err := repeatIfBusy(t.Context(), func() error {
				_, err := at.Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				return err
			})
			switch {
			case err == nil:
				fmt.Fprintf(&out, " %s", user.name)
			case !apierrors.IsForbidden(err):
				t.Errorf("%s as %s: %v", request, user.name, err)
			}
		}
		fmt.Fprintln(&out)
	}
	golden.Check(t, "testdata/operations.txt", out.String())
}

// listRequests returns the fields of requests for operations.
func listRequests() (out []string) {
	for _, kind := range operation.Kinds() {
		out = append(out, "kind: "+string(kind))
	}
	return append(out, `kind: upgrade, approvedPlan: "sha256:a"`, "kind: upgrade, cancelled: true", "kind: upgrade, retry: 1")
}

// TestPolicies_CheckChangesOfOperations changes an operation as a user of each role.
func TestPolicies_CheckChangesOfOperations(t *testing.T) {
	namespace, users := server.NewNamespace(t), newRoleUsers(t)
	owner := newDynamic(t, server.Admin).Resource(operationResource).Namespace(namespace)
	object := newOperation(t, "x", "{clusterRef: {name: prod}, kind: delete}")
	if _, err := owner.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	planned := []byte(`{"status": {"state": "AwaitingApproval", "plan": {"digest": "sha256:a"}}}`)
	if _, err := owner.Patch(t.Context(), "x", types.MergePatchType, planned, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		patch, reason string
		allowed       []string
	}{
		{`{"spec": {"approvedPlan": "sha256:a"}}`, "operators approve the plan", []string{"operator", "admin"}},
		{`{"spec": {"cancelled": true}}`, "operators cancel", []string{"operator", "admin"}},
		{`{"metadata": {"annotations": {"slipway.dev/cancel": "{}"}}}`, "this cancels too", []string{"operator", "admin"}},
		{`{"metadata": {"annotations": {"slipway.dev/request": "0a"}}}`, "only Slipway marks its operations", nil},
		{`{"metadata": {"annotations": {"slipway.dev/created": "2026-11-29T00:00:00Z"}}}`, "this decides the order", nil},
		{`{"spec": {"retry": 1}}`, "another attempt deletes the cluster", []string{"admin"}},
		{`{"metadata": {"labels": {"a": "b"}}}`, "a label has no effect", []string{"operator", "admin"}},
	} {
		for _, user := range users {
			at := newDynamic(t, user.config).Resource(operationResource).Namespace(namespace)
			err := repeatIfBusy(t.Context(), func() error {
				_, err := at.Patch(t.Context(), "x", types.MergePatchType, []byte(tc.patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
				return err
			})
			if want := strings.Contains(fmt.Sprint(tc.allowed), user.name); want != (err == nil) || err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("%s: %s as %s: got %v", tc.reason, tc.patch, user.name, err)
			}
		}
	}
}

// TestPolicies_HideContentOfDeletedSecrets deletes Secrets as an administrator of clusters, who
// may not read Secrets.
func TestPolicies_HideContentOfDeletedSecrets(t *testing.T) {
	namespace := server.NewNamespace(t)
	bindRole(t, "slipway-admin", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "secret-admin"})
	user := issueUser(t, "secret-admin")
	waitForRole(t, user, "slipway-admin")
	secrets := newKube(t, user).CoreV1().Secrets(namespace)
	createSecret(t, namespace, "a")
	if _, err := secrets.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("reading: %v", err)
	}
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		if err := secrets.Delete(t.Context(), "a", metav1.DeleteOptions{PropagationPolicy: &policy}); !apierrors.IsForbidden(err) {
			t.Errorf("deleting with %s: %v", policy, err)
		}
	}
	if err := secrets.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Errorf("deleting: %v", err)
	}
}
