package operationlog

import (
	"fmt"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	idDamaged    = "journal-part-damaged"
	idForeign    = "journal-part-foreign"
	idConflict   = "journal-parts-conflict"
	idIncomplete = "journal-incomplete"
)

// A GapError reports that some events of a journal are missing, although later events exist. A
// reader that follows a journal waits for the missing part: a list of objects can be older than a
// merge. If the part does not appear, the journal is incomplete.
type GapError struct {
	Operation string
	// From and To are the numbers of the missing events.
	From, To int64
	// Before is the name of the object after the gap.
	Before string
}

func (e *GapError) Error() string {
	return fmt.Sprintf("the journal of operation %s has no part with events %d to %d, before object %s", e.Operation, e.From, e.To, e.Before)
}

// explain returns the error for a journal that will not change.
func (e *GapError) explain() error {
	return diag.Refuse(idIncomplete, e.Error(), "restore all OperationLogs of the operation from one backup")
}

// damagedError returns the error for an object whose events cannot be read. Its content is not
// guessed.
func damagedError(p *v1alpha1.OperationLog, format string, args ...any) error {
	return diag.Refuse(idDamaged,
		fmt.Sprintf("OperationLog %s of operation %s is damaged: %s", p.Name, p.Spec.OperationRef.Name, fmt.Sprintf(format, args...)),
		"restore the object from a backup")
}

// foreignError returns the error for a part of another operation.
func foreignError(op *v1alpha1.Operation, p *v1alpha1.OperationLog) error {
	return diag.Refuse(idForeign,
		fmt.Sprintf("OperationLog %s belongs to operation %s with UID %s, not to operation %s with UID %s",
			p.Name, p.Spec.OperationRef.Name, p.Spec.OperationRef.UID, op.Name, op.UID),
		"restore the operation and its OperationLogs from the same backup")
}

// conflictError returns the error for two parts that cannot be of the same journal.
func conflictError(a, b *v1alpha1.OperationLog, problem string) error {
	return diag.Refuse(idConflict,
		fmt.Sprintf("OperationLogs %s and %s of operation %s %s", a.Name, b.Name, a.Spec.OperationRef.Name, problem),
		"restore all OperationLogs of the operation from one backup")
}
