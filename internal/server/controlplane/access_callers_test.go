package controlplane_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.dev/slipway/internal/server/useraccess"
)

// newKube returns a client for native objects.
func newKube(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// issueUser returns the configuration of a user with a client certificate.
func issueUser(t testing.TB, name string, groups ...string) *rest.Config {
	t.Helper()
	text, err := useraccess.Issue(t.Context(), server.Admin, useraccess.Request{
		User: name, Groups: groups, TTL: time.Hour, Server: server.URL(),
	})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

// withToken returns the configuration of a caller with a token.
func withToken(token string) *rest.Config {
	config := rest.AnonymousClientConfig(server.Admin)
	config.BearerToken, config.QPS = token, -1
	return config
}

// newAccount returns the configuration of a new service account.
func newAccount(t testing.TB, namespace, name string) *rest.Config {
	t.Helper()
	accounts := server.Client(t).CoreV1().ServiceAccounts(namespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := accounts.Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return withToken(requestToken(t, namespace, name, nil))
}

// requestToken returns a token of a service account. bound is the object that it is bound to.
func requestToken(t testing.TB, namespace, name string, bound *authenticationv1.BoundObjectReference) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}
	response, err := server.Client(t).CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return response.Status.Token
}

// bindRole binds a ClusterRole to a caller for the time of the test.
func bindRole(t testing.TB, role string, subject rbacv1.Subject) {
	t.Helper()
	bindings := server.Client(t).RbacV1().ClusterRoleBindings()
	made, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bindings.Delete(contextOfCleanup(t), made.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// roleRights have one right of each ClusterRole whose rules a role collects.
var roleRights = map[string][]authorizationv1.ResourceAttributes{
	"slipway-viewer":   {readRight},
	"slipway-operator": {readRight, operateRight},
	"slipway-admin":    {readRight, operateRight, {Verb: "create", Group: rbacv1.GroupName, Resource: "rolebindings"}},
}

var (
	readRight    = authorizationv1.ResourceAttributes{Verb: "list", Group: "events.k8s.io", Resource: "events"}
	operateRight = authorizationv1.ResourceAttributes{Verb: "cancel", Group: "slipway.dev", Resource: "operations"}
)

// waitForRole waits until a caller has the rights of a role: the server reads bindings, accounts
// and the collected rules with a delay.
func waitForRole(t testing.TB, config *rest.Config, role string) {
	t.Helper()
	if len(roleRights[role]) == 0 {
		t.Fatalf("no rights of %s are known", role)
	}
	for _, right := range roleRights[role] {
		waitUntil(t, fmt.Sprintf("%s lets its user %s %s", role, right.Verb, right.Resource), func(ctx context.Context) (bool, error) {
			allowed, err := askRight(ctx, t, config, right)
			if apierrors.IsUnauthorized(err) {
				return false, nil
			}
			return allowed, err
		})
	}
}

// askRight asks the server whether a caller has a right.
func askRight(ctx context.Context, t testing.TB, config *rest.Config, right authorizationv1.ResourceAttributes) (bool, error) {
	t.Helper()
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right}}
	got, err := newKube(t, config).AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	return err == nil && got.Status.Allowed, err
}

// whoAmI returns the name and the groups of a caller, as the server sees them.
func whoAmI(t testing.TB, config *rest.Config) (authenticationv1.UserInfo, error) {
	t.Helper()
	review, err := newKube(t, config).AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}
