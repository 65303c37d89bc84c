package drift

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
)

func TestDifferences_CountsChangesOnly(t *testing.T) {
	p := &plan.Plan{Steps: []plan.Step{
		{Host: "w1", State: plan.Uncheckable, Changes: []plan.OpChange{{Kind: op.KindFile, Target: "/a"}}},
		{Host: "w1", State: plan.Pending, Changes: []plan.OpChange{{Kind: op.KindFile, Target: "/b"}}},
	}}
	if f := differences(p); f.count != 0 || f.is != metav1.ConditionFalse {
		t.Errorf("%d differences (%s), want none: scripts and steps that are not known yet do not differ", f.count, f.is)
	}
	for i := range 12 {
		p.Steps = append(p.Steps, plan.Step{
			Host: "w1", State: plan.Change, Changes: []plan.OpChange{{Kind: op.KindFile, Target: fmt.Sprintf("/c%d", i)}},
		})
	}
	f := differences(p)
	if f.count != 12 || f.is != metav1.ConditionTrue || strings.Count(f.message, "w1: ") != maxListed {
		t.Errorf("%d differences (%s): %s, want 12, and the first ten in the message", f.count, f.is, f.message)
	}
}

func TestRefuse_PlanThatRemovesHosts(t *testing.T) {
	k := New(Config{})
	f := &finding{count: 1, plan: &plan.Plan{Removes: []string{"host w1 and all cluster data on it"}}}
	if why := k.refuse(t.Context(), new(v1alpha1.Cluster), nil, f, nil); why == "" {
		t.Error("a repair that removes a host is not refused")
	}
}
