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

// MaxStatusSize is the limit of the status of a cluster or an operation, as JSON, in bytes.
const MaxStatusSize = 64 << 10

// Limits of an OperationStatus, which keep it below MaxStatusSize. The limits of texts are in
// bytes.
const (
	MaxFailures       = 50
	MaxFailureMessage = 512
	MaxStatusMessage  = 4096
	MaxOperationHosts = 50
	MaxSteps          = 512
)

// OperationStatus is the result of an operation. It has at most 64 KiB, whatever the number of
// hosts. Its counts are complete, and the journal has all details.
type OperationStatus struct {
	// The generation of this object that the management plane has seen.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// `Pending`: not started. `Planning`: the plan is being made. `AwaitingApproval`: the
	// plan waits for `spec.approvedPlan`. `Running`. `Cancelling`: it stops at the next safe
	// point. `Succeeded`. `Failed`: it can be resumed. `Cancelled`: it was stopped, and can
	// be resumed. `Superseded`: a later operation replaces it.
	State OperationState `json:"state,omitempty"`
	// The reason of the state, one word: the ID of the message, if the message has one.
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// The reason of the state, for people.
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
	// Why the operation failed, for programs. `UserInput`: the request cannot be carried
	// out. `Credentials`: a login was refused, or a key or certificate cannot be used.
	// `Unreachable`: a host, the API or a download did not respond in time. `Capacity`: a
	// resource is used up. `Conflict`: another change or program interferes. `Internal`: any
	// other cause.
	ErrorCode ErrorCode `json:"errorCode,omitempty"`
	// The plan of the operation.
	Plan *PlanStatus `json:"plan,omitempty"`
	// The parameters after planning, if they differ from `spec.parameters`. A resume uses them.
	Parameters *OperationParameters `json:"parameters,omitempty"`
	// The backup set that `etcd-snapshot` made, or that `etcd-drill` tested.
	Backup *BackupResult `json:"backup,omitempty"`
	// The process that runs the operation.
	Executor *ExecutorStatus `json:"executor,omitempty"`
	// The number of unfinished operations of the cluster that come first.
	QueuePosition int32 `json:"queuePosition,omitempty"`
	// The time at which the management plane stops the current attempt.
	Deadline *metav1.Time `json:"deadline,omitempty"`
	// The value of `spec.retry` that the management plane has seen.
	ObservedRetry int32 `json:"observedRetry,omitempty"`
	// The automatic attempts by `spec.retryPolicy` of the cluster.
	AutomaticRetry *AutomaticRetryStatus `json:"automaticRetry,omitempty"`
	// The number of the latest attempt, from 1. Each resume is an attempt.
	Attempt int32 `json:"attempt,omitempty"`
	// The start of the first attempt.
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// The end of the latest attempt.
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// The number of all hosts, each counted once by its worst outcome.
	HostCounts HostCounts `json:"hostCounts,omitzero"`
	// The hosts that failed, in the order of their failures, then the slowest hosts: at most
	// 50.
	// +kubebuilder:validation:MaxItems=50
	// +listType=map
	// +listMapKey=name
	Hosts []OperationHost `json:"hosts,omitempty"`
	// The tasks, each with the counts of its hosts. If the status would be too large, they have
	// no titles, then no times and modules.
	// +kubebuilder:validation:MaxItems=512
	// +listType=atomic
	Steps []OperationStep `json:"steps,omitempty"`
	// The tasks that `steps` omits, because the status would be too large. Tasks with
	// failures are omitted last.
	OtherSteps *OtherSteps `json:"otherSteps,omitempty"`
	// The number of all failures.
	FailureCount int `json:"failureCount,omitempty"`
	// The failures, at most 50, in the order in which they happened. Ignored failures and
	// consequences of other failures come last. The journal has all failures.
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
	// The process that began the latest attempt: the name of its machine, and its process ID.
	// +kubebuilder:validation:MaxLength=253
	ID string `json:"id"`
	// The holder in the Lease of the cluster when the attempt began.
	// +kubebuilder:validation:MaxLength=253
	Lease string `json:"lease,omitempty"`
	// The fencing number of the lock on the hosts. Hosts refuse processes with lower numbers.
	// +kubebuilder:validation:Minimum=0
	FencingNumber int64 `json:"fencingNumber,omitempty"`
	// The latest time at which the process reported that it is alive.
	Heartbeat *metav1.Time `json:"heartbeat,omitempty"`
}

// AutomaticRetryStatus counts the automatic attempts of an operation.
type AutomaticRetryStatus struct {
	// The automatic attempts since the latest request of a user.
	Attempts int32 `json:"attempts"`
	// The time of the next automatic attempt. Absent if none follows.
	NextTime *metav1.Time `json:"nextTime,omitempty"`
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
	// Hosts with a failure that does not stop the operation.
	Ignored int `json:"ignored,omitempty"`
	// Hosts that were skipped.
	Skipped int `json:"skipped,omitempty"`
	// All hosts, including hosts without an outcome yet. In a task, the manager counts as a
	// host.
	Total int `json:"total,omitempty"`
}

// OtherSteps are the tasks that a status does not list.
type OtherSteps struct {
	// The number of tasks.
	Count int `json:"count"`
	// The sums of the counts of these tasks.
	Hosts HostCounts `json:"hosts"`
}

// HostState is the state of a host in an operation.
// +kubebuilder:validation:Enum=Failed;Running;Ignored;Changed;Done;Skipped
type HostState string

// The states of a host. If several apply, the first one counts.
const (
	HostFailed  HostState = "Failed"
	HostRunning HostState = "Running"
	HostIgnored HostState = "Ignored"
	HostChanged HostState = "Changed"
	HostDone    HostState = "Done"
	HostSkipped HostState = "Skipped"
)

// OperationHost is one host in all tasks of an operation.
type OperationHost struct {
	// The name of the host.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// `Failed`: a task failed. `Running`: a task is running. `Ignored`: a task failed, which does
	// not stop the operation. `Changed`: a task changed the host. `Done`: the host was in the
	// wanted state already. `Skipped`: no task was needed or possible.
	State HostState `json:"state"`
	// The time that its tasks took in all attempts, in seconds.
	Seconds int64 `json:"seconds,omitempty"`
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
	// The cause, at most 512 bytes. `…` at its end marks a shortened text.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
}
