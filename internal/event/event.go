// Package event defines the events of an operation. The journal, the view for
// people, the JSON lines and the status are all derived from these events only.
// No event contains a secret.
package event

import (
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/op"
)

// A Type names an event; it never changes.
type Type string

// The events of an operation, in the order of a run.
const (
	OperationStarted  Type = "operation.started"
	OperationFinished Type = "operation.finished"
	StepStarted       Type = "step.started"
	StepRetry         Type = "step.retry"    // Message is the reason, Attempt the number of the attempt
	StepProgress      Type = "step.progress" // Done of Total; Message is the current item
	StepOutput        Type = "step.output"   // Message is a part of a program's output
	StepFinished      Type = "step.finished" // Outcome is the result
	Note              Type = "note"          // Message is information, about Host if it is set
)

// An Outcome is the result of a step or an operation.
type Outcome string

// The outcomes.
const (
	Unchanged Outcome = "unchanged" // nothing to do
	Changed   Outcome = "changed"
	Failed    Outcome = "failed"
	Ignored   Outcome = "ignored" // failed; its task allows the operation to continue
	Skipped   Outcome = "skipped" // not needed here, or a step that it depends on failed
	Cancelled Outcome = "cancelled"
	Succeeded Outcome = "succeeded" // operations only
	Partial   Outcome = "partial"   // operations only: finished, with failed hosts
	Paused    Outcome = "paused"    // the operation paused as requested; for a step: it is after the pause
)

// An Event is one event of an operation.
type Event struct {
	Seq       int64     `json:"seq"`
	Time      time.Time `json:"time"`
	Type      Type      `json:"type"`
	Operation string    `json:"operation"`
	Cluster   string    `json:"cluster,omitempty"`
	// Kind is the operation's type (create, apply, delete…), on
	// OperationStarted.
	Kind    string `json:"kind,omitempty"`
	Digest  string `json:"digest,omitempty"` // of the plan, on OperationStarted
	Module  string `json:"module,omitempty"`
	Task    string `json:"task,omitempty"`
	Title   string `json:"title,omitempty"`
	Host    string `json:"host,omitempty"` // "" is the manager
	Attempt int    `json:"attempt,omitempty"`
	// After is the step, as "task@host", whose end allowed this step to begin, on
	// StepFinished; "" means the start of the operation.
	After   string   `json:"after,omitempty"`
	Outcome Outcome  `json:"outcome,omitempty"`
	Message string   `json:"message,omitempty"`
	Done    int64    `json:"done,omitempty"`
	Total   int64    `json:"total,omitempty"`
	Unit    string   `json:"unit,omitempty"` // of Done and Total; "" is bytes
	Changes []Change `json:"changes,omitempty"`
	// Failure is set if a step failed or was skipped because of a failure. On
	// OperationFinished it is the failure that ended the operation, and Task, Title and Host
	// are its place.
	Failure *Failure `json:"failure,omitempty"`
}

// A Change is one operation that changed something.
type Change struct {
	Kind    op.Kind `json:"kind"`
	Target  string  `json:"target"`
	Summary string  `json:"summary,omitempty"`
}

// A Failure is the cause of a step's failure, for people.
type Failure struct {
	Reason string `json:"reason"`
	// Code is the error code; "" for a skipped step, and in journals of earlier versions.
	Code    v1alpha1.ErrorCode `json:"code,omitempty"`
	Message string             `json:"message"`
	Remedy  string             `json:"remedy,omitempty"`
	Detail  string             `json:"detail,omitempty"`
	// CausedBy is set for a skipped step: the step that failed first.
	CausedBy string `json:"causedBy,omitempty"`
}

// A Sink receives events in order, one at a time. It must not block, because hosts wait
// for it. It cannot report an error: it handles its own failures. The journal is not a
// Sink, because its failure stops the operation.
type Sink interface {
	Emit(Event)
}

// SinkFunc adapts a function to a Sink.
type SinkFunc func(Event)

// Emit calls f.
func (f SinkFunc) Emit(e Event) { f(e) }

// SendNote sends a note about a host before an operation has begun; host is "" for the
// manager. The sink may be nil.
func SendNote(to Sink, host, message string) {
	if to != nil {
		to.Emit(Event{Type: Note, Host: host, Message: message})
	}
}
