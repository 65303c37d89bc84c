package executor

import (
	"errors"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/intent"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/plan"
)

// A planned is a plan that removes something.
type planned struct {
	lifecycle.Prepared
	leaving, removes []string
}

func (p planned) Leaving() []string { return p.leaving }
func (p planned) Plan() *plan.Plan  { return &plan.Plan{Removes: p.removes} }

// repair returns a run of a repair, which a user has approved.
func repair() *run {
	o := new(v1alpha1.Operation)
	o.Annotations = map[string]string{AnnotationRepair: "digest"}
	o.Spec.ApprovedPlan = "approved"
	return &run{operation: o}
}

func TestRepair_NeverRemovesHostsOrData(t *testing.T) {
	for name, p := range map[string]planned{
		"w1":         {leaving: []string{"w1"}, removes: []string{"host w1"}},
		"volume pv1": {removes: []string{"volume pv1"}},
	} {
		err := repair().refuseRepair(t.Context(), nil, p)
		var ends *End
		if !errors.As(err, &ends) || ends.Reason != ReasonRepairRefused || !strings.Contains(ends.Message, name) {
			t.Errorf("a repair that removes %s: %v, want reason %s", name, err, ReasonRepairRefused)
		}
	}
}

func TestRepair_IsWithdrawnAfterChange(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.Cluster, *intent.Intent)
		want   bool
	}{
		"nothing":  {func(*v1alpha1.Cluster, *intent.Intent) {}, false},
		"intent":   {func(_ *v1alpha1.Cluster, i *intent.Intent) { i.Digest = "newer" }, true},
		"paused":   {func(c *v1alpha1.Cluster, _ *intent.Intent) { c.Spec.Paused = true }, true},
		"reported": {func(c *v1alpha1.Cluster, _ *intent.Intent) { c.Spec.DriftPolicy = v1alpha1.DriftReport }, true},
	} {
		c, wants := new(v1alpha1.Cluster), &intent.Intent{Digest: "digest"}
		c.Spec.DriftPolicy = v1alpha1.DriftRepair
		tc.change(c, wants)
		if err := repair().withdrawRepair(c, wants); (err != nil) != tc.want {
			t.Errorf("%s: withdrawn: %v, want %t", name, err, tc.want)
		}
	}
}

// TestIsAutomatic_WithoutUser has operations that wait for a maintenance window, and operations that a user wants.
func TestIsAutomatic_WithoutUser(t *testing.T) {
	for name, tc := range map[string]struct {
		annotation string
		change     func(*v1alpha1.OperationSpec)
		want       bool
	}{
		"request":           {"example.com/a", nil, false},
		"repair":            {AnnotationRepair, nil, true},
		"scheduled":         {operation.AnnotationScheduled, nil, true},
		"approved":          {AnnotationRepair, func(s *v1alpha1.OperationSpec) { s.ApprovedPlan = "sha256:a" }, false},
		"repeated by users": {operation.AnnotationScheduled, func(s *v1alpha1.OperationSpec) { s.Retry = 1 }, false},
	} {
		o := new(v1alpha1.Operation)
		o.Annotations = map[string]string{tc.annotation: "a"}
		if tc.change != nil {
			tc.change(&o.Spec)
		}
		if got := IsAutomatic(o); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}
