package roles

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// readRoles returns all ClusterRoles by name.
func readRoles(t *testing.T) map[string]rbacv1.ClusterRole {
	t.Helper()
	out := map[string]rbacv1.ClusterRole{}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(Roles)))
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		var role rbacv1.ClusterRole
		if err = errors.Join(err, yaml.UnmarshalStrict(text, &role)); err != nil {
			t.Fatal(err)
		}
		if _, twice := out[role.Name]; twice || role.Kind != "ClusterRole" || role.APIVersion != rbacv1.SchemeGroupVersion.String() {
			t.Errorf("%s %s: twice %v", role.Kind, role.Name, twice)
		}
		out[role.Name] = role
	}
}

// rights returns the rights of an aggregated role, sorted: "verb resource.group".
func rights(t *testing.T, roles map[string]rbacv1.ClusterRole, name string) (out []string) {
	t.Helper()
	if roles[name].AggregationRule == nil || len(roles[name].Rules) > 0 {
		t.Fatalf("%s has rules, which the controller replaces, or no selectors", name)
	}
	for _, by := range roles[name].AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&by)
		if err != nil {
			t.Fatal(err)
		}
		for other, role := range roles {
			if other == name || !selector.Matches(labels.Set(role.Labels)) {
				continue
			}
			for _, rule := range role.Rules {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						for _, verb := range rule.Verbs {
							out = append(out, verb+" "+strings.TrimSuffix(resource+"."+group, "."))
						}
					}
				}
				if len(rule.NonResourceURLs)+len(rule.ResourceNames) > 0 {
					t.Errorf("%s has rules that this test does not know", other)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestRoles_HaveRights(t *testing.T) {
	roles := readRoles(t)
	viewer := []string{
		"get clusters.slipway.dev", "list clusters.slipway.dev", "watch clusters.slipway.dev", "get clusters/status.slipway.dev",
		"get operations.slipway.dev", "list operations.slipway.dev", "watch operations.slipway.dev", "get operations/status.slipway.dev",
		"get operations/plan.slipway.dev",
		"get operationlogs.slipway.dev", "list operationlogs.slipway.dev", "watch operationlogs.slipway.dev",
		"get events", "list events", "watch events", "get events.events.k8s.io", "list events.events.k8s.io", "watch events.events.k8s.io",
	}
	operator := slices.Concat(viewer, []string{
		"create clusters.slipway.dev", "update clusters.slipway.dev", "patch clusters.slipway.dev", "approve clusters.slipway.dev",
		"create operations.slipway.dev", "update operations.slipway.dev", "patch operations.slipway.dev", "cancel operations.slipway.dev",
	})
	bindings := "rolebindings.rbac.authorization.k8s.io"
	admin := slices.Concat(operator, []string{
		"delete clusters.slipway.dev", "exec clusters.slipway.dev", "kubeconfig clusters.slipway.dev", "delete operations.slipway.dev",
		"create secrets", "update secrets", "delete secrets",
		"get " + bindings, "list " + bindings, "watch " + bindings, "create " + bindings, "update " + bindings, "patch " + bindings,
		"delete " + bindings,
	})
	for name, want := range map[string][]string{"slipway-viewer": viewer, "slipway-operator": operator, "slipway-admin": admin} {
		slices.Sort(want)
		if d := cmp.Diff(want, rights(t, roles, name)); d != "" {
			t.Errorf("rights of %s (-want +got):\n%s", name, d)
		}
	}
	if len(roles) != 6 {
		t.Errorf("%d roles, want 6", len(roles))
	}
}
