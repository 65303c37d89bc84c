// Package event is the vocabulary of what happens during an operation. The
// journal, the human view, the JSON lines and the status are all made from
// these events and nothing else. No event holds a secret.
package event

import (
	"time"

	"slipway.dev/slipway/internal/node/op"
)

// A Type names an event; it never changes.
type Type string

// The events of an operation, in the order of a run.
const (
	OperationStarted  Type = "operation.started"
	OperationFinished Type = "operation.finished"
	StepStarted       Type = "step.started"
	StepRetry         Type = "step.retry"    // Message says why, Attempt which
	StepProgress      Type = "step.progress" // Done and Total; Message says what of
	StepOutput        Type = "step.output"   // Message is a piece of a program's output
	StepFinished      Type = "step.finished" // Outcome says how
	Note              Type = "note"          // something to tell: Message, perhaps Host
)

// An Outcome is how a step or an operation ended.
type Outcome string

// The outcomes.
const (
	Unchanged Outcome = "unchanged" // nothing to do
	Changed   Outcome = "changed"
	Failed    Outcome = "failed"
	Ignored   Outcome = "ignored" // failed, and its task says to go on
	Skipped   Outcome = "skipped" // not wanted here, or what it needs failed
	Cancelled Outcome = "cancelled"
	Succeeded Outcome = "succeeded" // operations only
	Partial   Outcome = "partial"   // operations only: finished, with failed hosts
	Paused    Outcome = "paused"    // stopped where it was to stop; of a step: behind that
)

// An Event is one thing that happened.
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
	// After is the step, as "task@host", whose end let this one begin, on
	// StepFinished; "" is the beginning of the operation.
	After   string   `json:"after,omitempty"`
	Outcome Outcome  `json:"outcome,omitempty"`
	Message string   `json:"message,omitempty"`
	Done    int64    `json:"done,omitempty"`
	Total   int64    `json:"total,omitempty"`
	Unit    string   `json:"unit,omitempty"` // of Done and Total; "" is bytes
	Changes []Change `json:"changes,omitempty"`
	Failure *Failure `json:"failure,omitempty"`
}

// A Change is one operation that changed something.
type Change struct {
	Kind    op.Kind `json:"kind"`
	Target  string  `json:"target"`
	Summary string  `json:"summary,omitempty"`
}

// A Failure is why a step failed, in words for people.
type Failure struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
	Detail  string `json:"detail,omitempty"`
	// CausedBy is the step that failed first, on a skipped step.
	CausedBy string `json:"causedBy,omitempty"`
}

// A Sink takes events, in order, one at a time. It must not block, for hosts
// wait for it, and cannot fail: what cannot be shown is its own matter. The
// journal, whose failure stops the operation, is none.
type Sink interface {
	Emit(Event)
}

// SinkFunc is a function as a Sink.
type SinkFunc func(Event)

// Emit calls f.
func (f SinkFunc) Emit(e Event) { f(e) }
