package clusters

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/status"
)

// The conditions that this controller sets. True is the normal state of Reconciled only.
const (
	conditionReconciled = "Reconciled"
	conditionStalled    = "Stalled"
	conditionPaused     = "Paused"
	conditionDeleting   = "Deleting"
)

// Reasons of conditions.
const (
	reasonApplied     = "IntentApplied"
	reasonInvalid     = "InvalidCluster"
	reasonValid       = "ValidCluster"
	reasonPaused      = "SpecPaused"
	reasonNotPaused   = "NotPaused"
	reasonWaiting     = "OperationUnfinished"
	reasonApproval    = "ApprovalRequired"
	reasonFailed      = "OperationFailed"
	reasonNotDeleting = "NotDeleted"
)

// fieldManager owns the fields of a status that this controller sets.
const fieldManager = "slipway-controller"

// A state is what this controller shows in the status of a Cluster.
type state struct {
	cluster    *v1alpha1.Cluster
	conditions []metav1.Condition
	applied    string
}

func (s *state) begin(c *v1alpha1.Cluster) {
	s.cluster, s.applied = c, c.Status.AppliedIntent
	for _, kind := range []string{conditionReconciled, conditionStalled, conditionPaused, conditionDeleting} {
		if is := meta.FindStatusCondition(c.Status.Conditions, kind); is != nil {
			s.conditions = append(s.conditions, *is)
		}
	}
	s.set(conditionPaused, metav1.ConditionFalse, reasonNotPaused, "")
	s.set(conditionDeleting, metav1.ConditionFalse, reasonNotDeleting, "")
}

func (s *state) set(kind string, is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: status.LimitMessage(message, v1alpha1.MaxConditionMessage),
		ObservedGeneration: s.cluster.Generation,
	})
}

// refuse shows problems that the user has to repair.
func (s *state) refuse(list diag.List) {
	s.set(conditionStalled, metav1.ConditionTrue, reasonInvalid, list.Errors().Error())
	s.set(conditionReconciled, metav1.ConditionFalse, reasonInvalid, "the Cluster or its files have errors")
}

func (s *state) accept() { s.set(conditionStalled, metav1.ConditionFalse, reasonValid, "") }

func (s *state) pause() {
	s.set(conditionPaused, metav1.ConditionTrue, reasonPaused, "spec.paused is true: no operation begins")
	s.set(conditionReconciled, metav1.ConditionUnknown, reasonPaused, "spec.paused is true")
}

// settle shows that the cluster is what its object says.
func (s *state) settle(digest string) {
	s.applied = digest
	s.set(conditionReconciled, metav1.ConditionTrue, reasonApplied, "")
}

// wait shows an unfinished operation.
func (s *state) wait(o *v1alpha1.Operation) {
	if o.Status.State == v1alpha1.OperationAwaitingApproval {
		s.set(conditionReconciled, metav1.ConditionFalse, reasonApproval, "operation "+o.Name+" needs an approval: "+o.Status.Message)
		return
	}
	s.set(conditionReconciled, metav1.ConditionFalse, reasonWaiting, "operation "+o.Name+" is unfinished")
}

// fail shows an operation that has ended without a success. A failure is not repeated.
func (s *state) fail(o *v1alpha1.Operation) {
	message := "operation " + o.Name + " has ended: " + cmp.Or(o.Status.Message, string(o.Status.State))
	s.set(conditionReconciled, metav1.ConditionFalse, reasonFailed, message)
	s.set(conditionStalled, metav1.ConditionTrue, reasonFailed, message+"\nto try again, raise spec.retry of the operation, or change the Cluster")
}

// saveState writes what this controller shows, if it differs. Other fields belong to operations.
func (p *pass) saveState(ctx context.Context) error {
	is := &p.cluster.Status
	recent := p.listRecent()
	wanted := v1alpha1.ClusterStatus{
		Conditions: p.state.conditions, ObservedGeneration: p.cluster.Generation, AppliedIntent: p.state.applied, RecentOperations: recent,
	}
	known := slices.DeleteFunc(slices.Clone(is.Conditions), func(c metav1.Condition) bool {
		return meta.FindStatusCondition(p.state.conditions, c.Type) == nil
	})
	if len(known) == len(wanted.Conditions) && equality.Semantic.DeepEqual(sorted(known), sorted(wanted.Conditions)) &&
		is.ObservedGeneration == wanted.ObservedGeneration && is.AppliedIntent == wanted.AppliedIntent &&
		equality.Semantic.DeepEqual(is.RecentOperations, recent) {
		return nil
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.APIVersion, "kind": "Cluster",
		"metadata": map[string]any{"name": p.cluster.Name, "namespace": p.cluster.Namespace, "uid": p.cluster.UID},
		"status":   wanted,
	})
	if err != nil {
		return err
	}
	object := new(unstructured.Unstructured)
	if err := object.UnmarshalJSON(text); err != nil {
		return err
	}
	err = p.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(fieldManager), client.ForceOwnership)
	return client.IgnoreNotFound(err)
}

// sorted returns conditions by type.
func sorted(list []metav1.Condition) []metav1.Condition {
	return slices.SortedFunc(slices.Values(list), func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
}

// listRecent returns the latest operations, newest first.
func (p *pass) listRecent() (out []v1alpha1.RecentOperation) {
	for _, o := range slices.Backward(p.operations) {
		if len(out) == v1alpha1.MaxRecentOperations {
			break
		}
		out = append(out, v1alpha1.RecentOperation{
			Name: o.Name, Kind: o.Spec.Kind, State: o.Status.State, EndTime: o.Status.EndTime,
		})
	}
	return out
}
