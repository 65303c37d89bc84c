package health

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An alarm is a condition that a person has to look at.
type alarm struct {
	kind string
	is   metav1.ConditionStatus
	// reasons limits the alarm to some reasons; none: all.
	reasons []string
}

// alarms are the conditions that a person has to look at, the most urgent first.
var alarms = []alarm{
	{kind: conditionReady, is: metav1.ConditionUnknown, reasons: []string{reasonNoAnswer}},
	{kind: conditionEtcd, is: metav1.ConditionFalse},
	{kind: conditionCertificates, is: metav1.ConditionFalse},
	{kind: conditionNodes, is: metav1.ConditionFalse},
	{kind: conditionEndpoint, is: metav1.ConditionFalse},
	{kind: "Stalled", is: metav1.ConditionTrue},
	{kind: "Deleting", is: metav1.ConditionTrue, reasons: []string{
		"HostsNotReset", "RecordsDeleted", "NamespaceTerminating", "ControllersInCluster",
	}},
	{kind: conditionHosts, is: metav1.ConditionFalse},
	{kind: conditionHosts, is: metav1.ConditionUnknown, reasons: []string{reasonProbeFailed}},
	{kind: conditionBackup, is: metav1.ConditionFalse},
	{kind: conditionBackup, is: metav1.ConditionTrue, reasons: []string{reasonTestFailed}},
	{kind: conditionCertificates, is: metav1.ConditionTrue, reasons: []string{reasonExpiring}},
	{kind: "Drifted", is: metav1.ConditionTrue},
	{kind: "Reconciled", is: metav1.ConditionFalse, reasons: []string{"ApprovalRequired"}},
}

// evaluateAttention sets the condition for people. Its reason is the most urgent one.
func (e *evaluation) evaluateAttention() {
	all := slices.Clone(e.Conditions)
	for _, c := range e.object.Status.Conditions {
		if !isOurs(c.Type) {
			all = append(all, c)
		}
	}
	reason := ""
	var messages []string
	for _, a := range alarms {
		for _, c := range all {
			if c.Type != a.kind || c.Status != a.is || len(a.reasons) > 0 && !slices.Contains(a.reasons, c.Reason) {
				continue
			}
			if reason == "" {
				reason = c.Reason
			}
			messages = append(messages, c.Type+" is "+string(c.Status)+" ("+c.Reason+")")
		}
	}
	if reason == "" {
		e.set(conditionAttention, metav1.ConditionFalse, reasonNoAttention, "")
		return
	}
	e.set(conditionAttention, metav1.ConditionTrue, reason, strings.Join(messages, ", "))
}
