package clusters

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/clusterstatus"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/status"
)

// The conditions that this controller sets. True is the normal state of Reconciled only. Paused and Deleting exist only
// while they are True.
const (
	conditionReconciled = "Reconciled"
	conditionStalled    = "Stalled"
	conditionPaused     = "Paused"
	conditionDeleting   = "Deleting"
)

// Reasons of conditions.
const (
	reasonApplied   = "IntentApplied"
	reasonInvalid   = "InvalidCluster"
	reasonHostInUse = "HostInUse"
	reasonRecords   = "RecordsNotUsable"
	reasonValid     = "ValidCluster"
	reasonPaused    = "SpecPaused"
	reasonWaiting   = "OperationUnfinished"
	reasonApproval  = "ApprovalRequired"
	reasonFailed    = "OperationFailed"
	reasonRepeated  = "OperationRepeated"
)

// fieldManager owns the fields of a status that this controller sets.
const fieldManager = "slipway-controller"

// A state has the fields that this controller sets in the status of a Cluster.
type state struct {
	cluster *v1alpha1.Cluster
	// conditions has one value of each condition, the last one that was set.
	conditions map[string]metav1.Condition
	applied    string
}

func (s *state) beginPass(c *v1alpha1.Cluster) {
	s.cluster, s.applied, s.conditions = c, c.Status.AppliedIntent, map[string]metav1.Condition{}
}

func (s *state) setCondition(kind string, is metav1.ConditionStatus, reason, message string) {
	s.conditions[kind] = metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: status.LimitMessage(message, v1alpha1.MaxConditionMessage),
		ObservedGeneration: s.cluster.Generation,
	}
}

// listConditions returns the conditions of this controller as they are shown, and as they shall be shown. A condition
// that was not set is kept, except Paused and Deleting. Only the last value of a pass counts: an earlier one would give
// the condition a new time, and each pass would cause the next one.
func (s *state) listConditions() (shown, wanted []metav1.Condition) {
	for _, kind := range []string{conditionDeleting, conditionPaused, conditionReconciled, conditionStalled} {
		is := meta.FindStatusCondition(s.cluster.Status.Conditions, kind)
		want, isSet := s.conditions[kind]
		if is != nil {
			shown = append(shown, *is)
			if isSet || kind == conditionReconciled || kind == conditionStalled {
				wanted = append(wanted, *is)
			}
		}
		if isSet {
			meta.SetStatusCondition(&wanted, want)
		}
	}
	return shown, wanted
}

// showProblems shows problems that the user has to repair.
func (s *state) showProblems(reason string, list diag.List) {
	s.setCondition(conditionStalled, metav1.ConditionTrue, reason, list.Errors().Error())
	s.setCondition(conditionReconciled, metav1.ConditionFalse, reason, "the Cluster or its files have errors")
}

// showRecords shows why the records of the cluster cannot be used: they are damaged, or the store refuses them.
func (s *state) showRecords(list diag.List) {
	kind := conditionStalled
	if s.cluster.DeletionTimestamp != nil {
		kind = conditionDeleting
	}
	s.setCondition(kind, metav1.ConditionTrue, reasonRecords, list.Errors().Error())
	s.setCondition(conditionReconciled, metav1.ConditionFalse, reasonRecords, "the records of the cluster cannot be used")
}

func (s *state) showValid() { s.setCondition(conditionStalled, metav1.ConditionFalse, reasonValid, "") }

func (s *state) showPaused() {
	s.setCondition(conditionPaused, metav1.ConditionTrue, reasonPaused, "spec.paused is true: changes of the object have no effect")
	s.setCondition(conditionReconciled, metav1.ConditionUnknown, reasonPaused, "spec.paused is true")
}

// showApplied shows that the cluster matches its object.
func (s *state) showApplied(digest string) {
	s.applied = digest
	s.setCondition(conditionReconciled, metav1.ConditionTrue, reasonApplied, "")
}

// showUnfinished shows an unfinished operation.
func (s *state) showUnfinished(o *v1alpha1.Operation) {
	if o.Status.State == v1alpha1.OperationAwaitingApproval {
		s.setCondition(conditionReconciled, metav1.ConditionFalse, reasonApproval, "operation "+o.Name+" needs an approval: "+o.Status.Message)
		return
	}
	s.setCondition(conditionReconciled, metav1.ConditionFalse, reasonWaiting, "operation "+o.Name+" is unfinished")
}

// showFailed shows an operation that has ended without a success. next describes its next automatic attempt, "" for
// none.
func (s *state) showFailed(o *v1alpha1.Operation, next string) {
	message := "operation " + o.Name + " has ended: " + cmp.Or(o.Status.Message, string(o.Status.State))
	if next != "" {
		s.setCondition(conditionReconciled, metav1.ConditionFalse, reasonRepeated, next+"; "+message)
		return
	}
	s.setCondition(conditionReconciled, metav1.ConditionFalse, reasonFailed, message)
	again := "raise spec.retry of the operation"
	if o.Spec.Cancelled {
		again = "create an Operation of kind apply"
	}
	s.setCondition(conditionStalled, metav1.ConditionTrue, reasonFailed, message+"\nto try again, "+again+", or change the Cluster")
}

// saveState writes what this controller shows, if it differs. Other fields belong to operations.
func (p *pass) saveState(ctx context.Context) error {
	is := &p.cluster.Status
	recent := p.listRecent()
	shown, conditions := p.state.listConditions()
	wanted := v1alpha1.ClusterStatus{
		Conditions: conditions, ObservedGeneration: p.cluster.Generation, AppliedIntent: p.state.applied, RecentOperations: recent,
	}
	if equality.Semantic.DeepEqual(shown, conditions) && is.ObservedGeneration == wanted.ObservedGeneration &&
		is.AppliedIntent == wanted.AppliedIntent && equality.Semantic.DeepEqual(is.RecentOperations, recent) {
		return nil
	}
	return clusterstatus.Apply(ctx, p.Client, p.cluster, fieldManager, wanted)
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
