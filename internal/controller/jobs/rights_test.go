package jobs

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"slipway.dev/slipway/internal/operator/manifests"
)

// TestRules_ArePartOfRightsOfOperator: the API server refuses to give rights that the operator does not have.
func TestRules_ArePartOfRightsOfOperator(t *testing.T) {
	for _, rule := range Rules("prod") {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				if !slices.ContainsFunc(manifests.ListRules(), func(has rbacv1.PolicyRule) bool {
					return slices.Contains(has.APIGroups, rule.APIGroups[0]) && slices.Contains(has.Resources, resource) &&
						slices.Contains(has.Verbs, verb) && len(has.ResourceNames) == 0
				}) {
					t.Errorf("the operator has no right to %s %s of group %q", verb, resource, rule.APIGroups[0])
				}
			}
		}
	}
}
