package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestManifestGivesWhatIsNeeded: the rights are those that the program uses, on
// the objects it names, in two namespaces, and nobody else gets them.
func TestManifestGivesWhatIsNeeded(t *testing.T) {
	data, err := os.ReadFile("../../internal/module/endpoint/templates/updater.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	got := map[string][]rbacv1.PolicyRule{}
	for doc := range bytes.SplitSeq(regexp.MustCompile(`{{[^}]*}}`).ReplaceAll(data, []byte("1")), []byte("\n---\n")) {
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
	for _, f := range families() {
		names = append(names, sliceName("apiserver", f))
	}
	slicesOf := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: slices.Sorted(slices.Values(verbs))}
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
