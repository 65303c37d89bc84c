package daemon

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/server/adminclient"
	"slipway.dev/slipway/internal/store/kube"
)

// savePlan saves an operation with a plan of three steps in a namespace, and returns its name. user is a viewer there.
func savePlan(t *testing.T, config *rest.Config, namespace, user string) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "slipway-viewer"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	backend, err := openRecords(kube.Config{Client: config, BackupDir: t.TempDir(), TempDir: t.TempDir(), WithoutArchive: true})(namespace)
	if err != nil {
		t.Fatal(err)
	}
	p := &plan.Plan{Cluster: "prod", Operation: "apply"}
	for _, host := range []string{"cp1", "w1", "w2"} {
		p.Steps = append(p.Steps, plan.Step{Module: "os", Task: "os.kernel", Title: "configure kernel", Host: host, State: plan.Change})
	}
	if err := p.Seal(); err != nil {
		t.Fatal(err)
	}
	spec := v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: "apply"}
	o, err := backend.Operations().Create(t.Context(), time.Now(), spec, p)
	if err != nil {
		t.Fatal(err)
	}
	return o.Name
}

// readPlan reads a page of a plan as a user.
func readPlan(t *testing.T, config *rest.Config, user, path string, query url.Values) (*plan.Page, error) {
	t.Helper()
	as := rest.CopyConfig(config)
	as.Impersonate.UserName = user
	client, err := kubernetes.NewForConfig(as)
	if err != nil {
		t.Fatal(err)
	}
	request := client.RESTClient().Get().AbsPath(path)
	for name := range query {
		request.Param(name, query.Get(name))
	}
	result := request.Do(t.Context())
	if err := result.Error(); err != nil {
		return nil, err
	}
	text, err := result.Raw()
	if err != nil {
		t.Fatal(err)
	}
	page := new(plan.Page)
	if err := json.Unmarshal(text, page); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return page, nil
}

// TestPlan_IsReadByViewersOfNamespace reads a plan page by page, as users with and without the right.
func TestPlan_IsReadByViewersOfNamespace(t *testing.T) {
	config, err := adminclient.Open(serverDir)
	if err != nil {
		t.Fatal(err)
	}
	name := savePlan(t, config, "plans", "vera")
	savePlan(t, config, "plans-other", "otto")
	path := func(namespace, name string) string {
		return fmt.Sprintf("/slipway/v1/namespaces/%s/operations/%s/plan", namespace, name)
	}
	at := path("plans", name)

	eventually(t, func() string { // the roles take effect when the server has seen them
		if _, err := readPlan(t, config, "vera", at, nil); err != nil {
			return err.Error()
		}
		return ""
	})
	first, err := readPlan(t, config, "vera", at, url.Values{"limit": {"2"}})
	if err != nil || len(first.Steps) != 2 || first.Count != 3 || first.Continue == "" || first.Steps[0].ID != "os.kernel@cp1" {
		t.Fatalf("the first page: %+v, %v", first, err)
	}
	next, err := readPlan(t, config, "vera", at, url.Values{"limit": {"2"}, "continue": {first.Continue}})
	if err != nil || len(next.Steps) != 1 || next.Continue != "" || next.Steps[0].Host != "w2" || next.Digest != first.Digest {
		t.Errorf("the next page: %+v, %v", next, err)
	}
	ofHost, err := readPlan(t, config, "vera", at, url.Values{"host": {"w1"}, "step": {"os.kernel@w1"}})
	if err != nil || len(ofHost.Steps) != 1 || ofHost.Steps[0].Host != "w1" {
		t.Errorf("the steps of a host: %+v, %v", ofHost, err)
	}

	for name, c := range map[string]struct {
		user, path string
		query      url.Values
		is         func(error) bool
	}{
		"other namespace":  {"otto", at, nil, apierrors.IsForbidden},
		"no rights":        {"eve", at, nil, apierrors.IsForbidden},
		"no operation":     {"vera", path("plans", "gone"), nil, apierrors.IsNotFound},
		"no namespace":     {"vera", path("gone", name), nil, apierrors.IsForbidden},
		"other part":       {"", at + "s", nil, apierrors.IsNotFound},
		"longer path":      {"", at + "/x", nil, apierrors.IsNotFound},
		"bad limit":        {"vera", at, url.Values{"limit": {"all"}}, apierrors.IsBadRequest},
		"large limit":      {"vera", at, url.Values{"limit": {"501"}}, apierrors.IsBadRequest},
		"unknown name":     {"vera", at, url.Values{"hosts": {"w1"}}, apierrors.IsBadRequest},
		"bad continuation": {"vera", at, url.Values{"continue": {"x"}}, apierrors.IsBadRequest},
		"other plan":       {"vera", at, url.Values{"continue": {"sha256:0/2"}}, apierrors.IsResourceExpired},
	} {
		t.Run(name, func(t *testing.T) {
			if page, err := readPlan(t, config, c.user, c.path, c.query); !c.is(err) {
				t.Errorf("got %+v, %v", page, err)
			}
		})
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.RESTClient().Delete().AbsPath(at).Do(t.Context()).Error(); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("deleting a plan: %v", err)
	}
}
