package controller

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/internal/operator/manifests"
)

// operatorUser is the user of the controllers in all tests: they have only the rights of an operator.
const operatorUser = "system:serviceaccount:" + manifests.Namespace + ":" + manifests.Name

// granted gives the operator its rights once.
var granted sync.Once

// grantRights applies the roles of the operator.
func grantRights(t *testing.T) {
	t.Helper()
	granted.Do(func() {
		objects, err := manifests.Objects(manifests.Options{Version: "dev"})
		if err != nil {
			t.Fatal(err)
		}
		api := server.Client(t).RbacV1()
		for _, o := range objects {
			if o.GetName() != manifests.Name {
				continue
			}
			var err error
			switch o.GetKind() {
			case "ClusterRole":
				role := new(rbacv1.ClusterRole)
				if err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err == nil {
					_, err = api.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
				}
			case "ClusterRoleBinding":
				binding := new(rbacv1.ClusterRoleBinding)
				if err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, binding); err == nil {
					_, err = api.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// asOperator makes a client act as the operator.
func asOperator(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Impersonate = rest.ImpersonationConfig{UserName: operatorUser, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	return c
}

// usedRights has the rights that the controllers of all tests have used: "verb group/resource/subresource".
var usedRights sync.Map

// noteRight notes the right that a request needs.
func noteRight(r *http.Request) {
	info, err := resolver.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest {
		return
	}
	usedRights.Store(strings.TrimSuffix(info.Verb+" "+info.APIGroup+"/"+info.Resource+"/"+info.Subresource, "/"), true)
}

var resolver = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// unusedRights are the rights of an operator that these tests cannot use, with the reason.
var unusedRights = map[string]string{
	"create rbac.authorization.k8s.io/roles":                              "of Jobs",
	"create rbac.authorization.k8s.io/rolebindings":                       "of Jobs",
	"get admissionregistration.k8s.io/validatingwebhookconfigurations":    "of the webhook",
	"update admissionregistration.k8s.io/validatingwebhookconfigurations": "of the webhook",
	"create authentication.k8s.io/tokenreviews":                           "of the metrics",
	"create authorization.k8s.io/subjectaccessreviews":                    "of the metrics",
	"create slipway.dev/clusters":                                         "required by the policy for operations",
	"update slipway.dev/clusters":                                         "required by the policy for operations",
	"delete slipway.dev/clusters":                                         "required by the policy for operations",
	"cancel slipway.dev/operations":                                       "required by the policy for operations",
	"delete rbac.authorization.k8s.io/roles":                              "of Jobs",
	"delete rbac.authorization.k8s.io/rolebindings":                       "of Jobs",
	"get /nodes":      "of Jobs",
	"get /configmaps": "of Clusters with files in ConfigMaps",
}

// occasionalRights are the rights that a run of the tests uses or not, with the reason.
var occasionalRights = map[string]string{
	"list /configmaps":           "if a watch with a list fails: an informer then lists and watches",
	"patch events.k8s.io/events": "of an event that happens again",
}

// A checkedRun runs the tests of the package. If all have run, it compares the rights of an operator with the used ones.
type checkedRun struct{ m *testing.M }

// Run implements the parameter of testserver.Run.
func (c checkedRun) Run() int {
	code := c.m.Run()
	if code != 0 || flag.Lookup("test.run").Value.String() != "" || flag.Lookup("test.skip").Value.String() != "" {
		return code
	}
	for _, right := range listGranted() {
		if _, ok := occasionalRights[right]; ok {
			continue
		}
		_, used := usedRights.Load(right)
		if _, named := unusedRights[right]; used == named {
			fmt.Fprintf(os.Stderr, "right %q of the operator: used by the tests: %t, named as unused: %t\n", right, used, named)
			code = 1
		}
	}
	return code
}

// listGranted returns the rights of the operator.
func listGranted() (out []string) {
	for _, rule := range manifests.ListRules() {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					out = append(out, verb+" "+group+"/"+resource)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
