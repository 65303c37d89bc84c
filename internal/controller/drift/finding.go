package drift

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/clusterstatus"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/status"
)

// conditionDrifted is True if hosts differ from what was last applied. Its normal state is False.
const conditionDrifted = "Drifted"

// Reasons of the condition.
const (
	reasonDiffers     = "HostsDiffer"
	reasonSame        = "NoDifference"
	reasonCheckFailed = "CheckFailed"
	reasonRepairing   = "RepairRequested"
	reasonRefused     = "RepairRefused"
)

// fieldManager owns the fields of a status that the checker sets.
const fieldManager = "slipway-drift"

// maxListed is the number of differences in a message.
const maxListed = 10

// A finding is the result of a check.
type finding struct {
	is      metav1.ConditionStatus
	reason  string
	message string
	count   int
	plan    *plan.Plan // nil if there is none
}

// failure returns the result of a check that failed.
func failure(err error) *finding {
	return &finding{is: metav1.ConditionUnknown, reason: reasonCheckFailed, message: err.Error()}
}

// differences returns the changes of a plan. Steps that are not known yet, and scripts of users, are not
// differences.
func differences(p *plan.Plan) *finding {
	out := &finding{is: metav1.ConditionFalse, reason: reasonSame, plan: p}
	var lines []string
	for _, s := range p.Steps {
		if s.State != plan.Change {
			continue
		}
		for _, c := range s.Changes {
			lines = append(lines, strings.TrimPrefix(s.Host+": "+string(c.Kind)+" "+c.Target, ": "))
		}
	}
	if out.count = len(lines); out.count == 0 {
		return out
	}
	out.is, out.reason = metav1.ConditionTrue, reasonDiffers
	out.message = fmt.Sprintf("%d differences: %s", len(lines), strings.Join(lines[:min(len(lines), maxListed)], "; "))
	return out
}

// show writes a result, and emits an event if it differs from the earlier one.
func (k *Checker) show(ctx context.Context, c *v1alpha1.Cluster, f *finding) error {
	message := status.LimitMessage(f.message, v1alpha1.MaxConditionMessage)
	was := meta.FindStatusCondition(c.Status.Conditions, conditionDrifted)
	now := metav1.NewTime(k.Now().Truncate(time.Second))
	condition := metav1.Condition{
		Type: conditionDrifted, Status: f.is, Reason: f.reason, Message: message, ObservedGeneration: c.Generation, LastTransitionTime: now,
	}
	if was != nil && was.Status == f.is {
		condition.LastTransitionTime = was.LastTransitionTime
	}
	wanted := map[string]any{"conditions": []metav1.Condition{condition}}
	var summary *v1alpha1.DriftSummary // without it, the field would be removed
	if c.Status.Summary != nil {
		summary = c.Status.Summary.Drift
	}
	if f.is != metav1.ConditionUnknown {
		summary = &v1alpha1.DriftSummary{Count: f.count, ObservedTime: now}
	}
	if summary != nil {
		wanted["summary"] = map[string]any{"drift": summary}
	}
	if err := clusterstatus.Apply(ctx, k.Client, c, fieldManager, wanted); err != nil {
		return err
	}
	if f.is == metav1.ConditionTrue && (was == nil || was.Status != f.is || was.Message != message) {
		k.Events.Eventf(c, nil, corev1.EventTypeWarning, f.reason, "CheckDrift", "%s", message)
	}
	return nil
}
