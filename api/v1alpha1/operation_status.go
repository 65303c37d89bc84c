package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// OperationState is the state of an operation.
// +kubebuilder:validation:Enum=Pending;Planning;AwaitingApproval;Running;Cancelling;Succeeded;Failed;Cancelled;Superseded
type OperationState string

// The states of an operation. Only the management plane uses OperationPlanning,
// OperationAwaitingApproval, OperationCancelling and OperationSuperseded.
const (
	OperationPending          OperationState = "Pending"
	OperationPlanning         OperationState = "Planning"
	OperationAwaitingApproval OperationState = "AwaitingApproval"
	OperationRunning          OperationState = "Running"
	OperationCancelling       OperationState = "Cancelling"
	OperationSucceeded        OperationState = "Succeeded"
	OperationFailed           OperationState = "Failed"
	OperationCancelled        OperationState = "Cancelled"
	OperationSuperseded       OperationState = "Superseded"
)

// ErrorCode classifies why an operation failed, for programs.
// +kubebuilder:validation:Enum=UserInput;Credentials;Unreachable;Capacity;Conflict;Internal
type ErrorCode string

// The error codes.
const (
	ErrorUserInput   ErrorCode = "UserInput"
	ErrorCredentials ErrorCode = "Credentials"
	ErrorUnreachable ErrorCode = "Unreachable"
	ErrorCapacity    ErrorCode = "Capacity"
	ErrorConflict    ErrorCode = "Conflict"
	ErrorInternal    ErrorCode = "Internal"
)

// Limits of an OperationStatus, which keep it below 64 KiB.
const (
	MaxFailures       = 50
	MaxFailureMessage = 512  // bytes
	MaxStatusMessage  = 4096 // bytes
)

// OperationStatus is the result of an operation. Its size does not depend on the
// number of hosts; the journal has all details.
type OperationStatus struct {
	// The generation of this object that the management plane has seen.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// `Pending`: not started. `Planning`: the plan is being made. `AwaitingApproval`: the
	// plan waits for `spec.approvedPlan`. `Running`. `Cancelling`: it stops at the next safe
	// point. `Succeeded`. `Failed`: it can be resumed. `Cancelled`: it was stopped, and can
	// be resumed. `Superseded`: a later operation replaces it.
	State OperationState `json:"state,omitempty"`
	// The reason of the state, one word: the reason of the first failure.
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// The reason of the state, for people.
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
	// Why the operation failed, for programs. `UserInput`: the request cannot be carried
	// out. `Credentials`: a login was refused. `Unreachable`: a host or the API did not
	// respond. `Capacity`: a resource is used up. `Conflict`: another change interferes.
	// `Internal`: any other cause.
	ErrorCode ErrorCode `json:"errorCode,omitempty"`
	// The plan of the operation.
	Plan *PlanStatus `json:"plan,omitempty"`
	// The process that runs the operation.
	Executor *ExecutorStatus `json:"executor,omitempty"`
	// The number of the latest attempt, from 1. Each resume is an attempt.
	Attempt int32 `json:"attempt,omitempty"`
	// The start of the first attempt.
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// The end of the latest attempt.
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// The tasks, each with all its hosts.
	// +kubebuilder:validation:MaxItems=512
	// +listType=atomic
	Steps []OperationStep `json:"steps,omitempty"`
	// The failures of hosts, at most 50, in the order in which they happened. The journal
	// has all of them.
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	Failures []StepFailure `json:"failures,omitempty"`
	// The extent of the journal.
	Journal *JournalStatus `json:"journal,omitempty"`
}

// PlanStatus is the plan of an operation, in short.
type PlanStatus struct {
	// The digest of the plan, `sha256:` and 64 hexadecimal digits. An approval names it.
	// +kubebuilder:validation:MaxLength=128
	Digest string `json:"digest"`
	// The changes of the plan, for people.
	// +kubebuilder:validation:MaxLength=1024
	Summary string `json:"summary,omitempty"`
}

// ExecutorStatus is the process that runs an operation.
type ExecutorStatus struct {
	// The ID of the process.
	// +kubebuilder:validation:MaxLength=253
	ID string `json:"id"`
	// The latest time at which the process reported that it is alive.
	Heartbeat *metav1.Time `json:"heartbeat,omitempty"`
}

// JournalStatus is the extent of a journal.
type JournalStatus struct {
	// The number of segments.
	Segments int32 `json:"segments,omitempty"`
	// The number of events.
	Events int64 `json:"events,omitempty"`
	// The size of all segments.
	Bytes int64 `json:"bytes,omitempty"`
	// Old segments were deleted because the journal was too large.
	Truncated bool `json:"truncated,omitempty"`
}

// OperationStep is one task on all its hosts.
type OperationStep struct {
	// The module of the task.
	// +kubebuilder:validation:MaxLength=64
	Module string `json:"module,omitempty"`
	// The ID of the task.
	// +kubebuilder:validation:MaxLength=128
	Task string `json:"task"`
	// The title of the task.
	// +kubebuilder:validation:MaxLength=256
	Title string `json:"title,omitempty"`
	// The start of the task on the first host.
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// The end of the task on the last host.
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// The number of hosts by outcome.
	Hosts HostCounts `json:"hosts"`
}

// HostCounts counts hosts by outcome.
type HostCounts struct {
	// Hosts that were in the wanted state already.
	Done int `json:"done,omitempty"`
	// Hosts that were changed.
	Changed int `json:"changed,omitempty"`
	// Hosts that failed.
	Failed int `json:"failed,omitempty"`
	// Hosts that were skipped.
	Skipped int `json:"skipped,omitempty"`
}

// StepFailure is the failure of one task on one host.
type StepFailure struct {
	// The ID of the task.
	// +kubebuilder:validation:MaxLength=128
	Task string `json:"task"`
	// The host; empty for the manager.
	// +kubebuilder:validation:MaxLength=63
	Host string `json:"host,omitempty"`
	// The reason, one word.
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason"`
	// The cause, at most 512 bytes.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
}
