package main

import (
	"bytes"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestManifest_LimitsWritesToOwnSlices: a slice with the label of another Service counts
// for that Service, and a role can limit neither labels nor the names of new objects.
func TestManifest_LimitsWritesToOwnSlices(t *testing.T) {
	var policy admissionv1.ValidatingAdmissionPolicy
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	for _, doc := range manifestDocuments(t) {
		for _, o := range []any{&policy, &binding} {
			if kind := reflect.TypeOf(o).Elem().Name(); bytes.Contains(doc, []byte("\nkind: "+kind+"\n")) {
				if err := yaml.UnmarshalStrict(doc, o); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if policy.Name == "" || binding.Spec.PolicyName != policy.Name ||
		!slices.Equal(binding.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) {
		t.Fatalf("policy %q is bound as %+v", policy.Name, binding.Spec)
	}
	if f := policy.Spec.FailurePolicy; f == nil || *f != admissionv1.Fail {
		t.Errorf("failure policy: %v", f)
	}
	matched := map[string][]admissionv1.OperationType{}
	for _, r := range policy.Spec.MatchConstraints.ResourceRules {
		matched[strings.Join(r.APIGroups, " ")+"/"+strings.Join(r.Resources, " ")] = r.Operations
	}
	both := []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
	if d := cmp.Diff(map[string][]admissionv1.OperationType{"discovery.k8s.io/endpointslices": both, "coordination.k8s.io/leases": both},
		matched); d != "" {
		t.Errorf("the checked requests (-want +got):\n%s", d)
	}
	if c := policy.Spec.MatchConditions; len(c) != 1 ||
		c[0].Expression != "request.userInfo.username == 'system:serviceaccount:kube-system:apiserver-updater'" {
		t.Errorf("the identity: %+v", c)
	}
	var names []string
	for _, f := range addressFamilies() {
		names = append(names, "'"+sliceName("apiserver", f)+"'")
	}
	var all strings.Builder
	for _, v := range policy.Spec.Validations {
		all.WriteString(strings.Join(strings.Fields(v.Expression), " ") + "\n")
	}
	for _, want := range []string{
		"object.metadata.name == '" + leaseName + "'", "object.metadata.name in [" + strings.Join(names, ", ") + "]",
		"object.metadata.labels['" + discoveryv1.LabelServiceName + "'] == 'apiserver'",
	} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("no rule has %s:\n%s", want, all.String())
		}
	}
}

// manifestDocuments returns the documents of the manifest.
func manifestDocuments(t *testing.T) (docs [][]byte) {
	t.Helper()
	data, err := os.ReadFile("../../internal/module/endpoint/templates/updater.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for doc := range bytes.SplitSeq(regexp.MustCompile(`{{[^}]*}}`).ReplaceAll(data, []byte("1")), []byte("\n---\n")) {
		docs = append(docs, doc)
	}
	return docs
}

// TestManifest_GrantsOnlyNeededRights: only the service account of the program gets
// rights, and only the rights that the program uses, on its objects in two namespaces.
func TestManifest_GrantsOnlyNeededRights(t *testing.T) {
	kinds := map[string]bool{}
	got := map[string][]rbacv1.PolicyRule{}
	for _, doc := range manifestDocuments(t) {
		var r rbacv1.Role
		if err := yaml.Unmarshal(doc, &r); err != nil {
			t.Fatal(err)
		}
		kinds[r.Kind] = true
		if r.Kind == "Role" {
			got[r.Namespace] = r.Rules
		}
		for l := range r.Labels {
			if l != "app.kubernetes.io/name" {
				t.Errorf("%s %s has the label %s: a role that is aggregated is given to others", r.Kind, r.Name, l)
			}
		}
	}
	if kinds["ClusterRole"] || kinds["ClusterRoleBinding"] || kinds["Endpoints"] {
		t.Errorf("kinds: %v", kinds)
	}
	var names []string
	for _, f := range addressFamilies() {
		names = append(names, sliceName("apiserver", f))
	}
	slicesOf := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"},
			Verbs: slices.Sorted(slices.Values(verbs)),
		}
	}
	leases := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}}
	own, lease := slicesOf("get", "update", "delete"), leases
	own.ResourceNames = names
	lease.ResourceNames, lease.Verbs = []string{leaseName}, []string{"get", "update"}
	want := map[string][]rbacv1.PolicyRule{
		sourceNamespace: {slicesOf("list", "watch")},
		"kube-system":   {slicesOf("create", "list", "watch"), own, leases, lease},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-needed +given):\n%s", diff)
	}
}
