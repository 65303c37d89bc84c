package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=slop,categories=slipway
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Cluster,type=string,JSONPath=.spec.cluster
// +kubebuilder:printcolumn:name=Type,type=string,JSONPath=.spec.type
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=.status.message,priority=1
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp

// Operation is one recorded run of a pipeline.
type Operation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The requested operation.
	Spec OperationSpec `json:"spec"`
	// The result.
	Status OperationStatus `json:"status,omitempty"`
}

// +kubebuilder:object:root=true

// OperationList is a list of operations.
type OperationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Operation `json:"items"`
}

// OperationSpec describes the requested operation.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an operation cannot change"
type OperationSpec struct {
	// The name of the cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	Cluster string `json:"cluster"`
	// `create`, `apply`, `add-nodes`, `delete-nodes`, `forget-nodes`, `upgrade`,
	// `rollback-upgrade`, `delete`, `rollback`, `init-os`, `init-registry`, `renew-certs`,
	// `rotate-ca`, `etcd-defrag`, `etcd-restore`, `etcd-rescue` or `reboot-nodes`.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	Type string `json:"type"`
	// The digest of the plan.
	// +kubebuilder:validation:MaxLength=128
	PlanDigest string `json:"planDigest,omitempty"`
	// The precheck findings that the user chose to ignore.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	IgnoredChecks []string `json:"ignoredChecks,omitempty"`
	// The hosts of `add-nodes`, `delete-nodes` and `reboot-nodes`, and the lost hosts of
	// `forget-nodes` and `etcd-rescue`.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=set
	Nodes []string `json:"nodes,omitempty"`
	// Pods that cannot be evicted are deleted.
	Force bool `json:"force,omitempty"`
	// Hosts that do not respond, fail or belong to another cluster are removed from the
	// state, and are not reset.
	Forget bool `json:"forget,omitempty"`
	// Settings remain on a node that is not healthy with them.
	KeepFailed bool `json:"keepFailed,omitempty"`
	// The limit for the drain of a host that is removed, upgraded or rebooted.
	DrainTimeout metav1.Duration `json:"drainTimeout,omitzero"`
	// The number of workers that an upgrade or `reboot-nodes` takes out of service at
	// once: a number, or a percentage.
	// +kubebuilder:validation:MaxLength=8
	MaxUnavailable string `json:"maxUnavailable,omitempty"`
	// The final Kubernetes version of an upgrade. Each minor version on the path is a
	// separate operation.
	// +kubebuilder:validation:MaxLength=32
	Version string `json:"version,omitempty"`
	// The path of the cluster file of an upgrade. Empty if only the version was given;
	// `-` for standard input.
	File string `json:"file,omitempty"`
	// The certificates that `renew-certs` renews. Default: all that are due.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	Certificates []string `json:"certificates,omitempty"`
	// `renew-certs` renews all certificates, whatever their remaining validity.
	AllCertificates bool `json:"allCertificates,omitempty"`
	// `renew-certs` renews certificates that expire within this time.
	Within metav1.Duration `json:"within,omitzero"`
	// The backup file of `etcd-restore`.
	Backup string `json:"backup,omitempty"`
	// The file of the key that decrypts the backup.
	Identity string `json:"identity,omitempty"`
	// The ID of the content of the backup, or of the member whose data `etcd-rescue` uses. A
	// resume does not continue with other data.
	Restores string `json:"restores,omitempty"`
	// An additional public key with which `etcd-restore` verified the set.
	SignedBy string `json:"signedBy,omitempty"`
	// The set was used without a valid signature.
	Unverified bool `json:"unverified,omitempty"`
	// Hosts got lost keys from an unverified set.
	WithKeys bool `json:"withKeys,omitempty"`
	// A trusted key signed the set.
	Verified bool `json:"verified,omitempty"`
	// The name of each CA or key that `rotate-ca` rotates, with the ID of the old one. The
	// new one is not rotated again.
	Rotates map[string]string `json:"rotates,omitempty"`
	// Each host of `reboot-nodes`, with the ID of the boot that must end. A host is not
	// rebooted twice.
	Boots map[string]string `json:"boots,omitempty"`
}

// OperationPhase is the state of an operation.
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed;Cancelled
type OperationPhase string

// The phases of an operation.
const (
	OperationPending   OperationPhase = "Pending"
	OperationRunning   OperationPhase = "Running"
	OperationSucceeded OperationPhase = "Succeeded"
	OperationFailed    OperationPhase = "Failed"
	OperationCancelled OperationPhase = "Cancelled"
)

// OperationStatus is the result of an operation. Its size does not depend on the
// number of hosts; the journal has all details.
type OperationStatus struct {
	// `Pending`, `Running`, `Succeeded`, `Failed` or `Cancelled`.
	Phase OperationPhase `json:"phase,omitempty"`
	// The start of the first attempt.
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// The end of the latest attempt.
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// The tasks, each with all its hosts.
	// +listType=atomic
	Steps []OperationStep `json:"steps,omitempty"`
	// The reason of the phase.
	Message string `json:"message,omitempty"`
}

// OperationStep is one task on all its hosts.
type OperationStep struct {
	// The ID of the task.
	Task string `json:"task"`
	// The title of the task.
	Title string `json:"title,omitempty"`
	// The start of the task on the first host.
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// The end of the task on the last host.
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// The number of hosts by outcome.
	Hosts HostCounts `json:"hosts"`
	// The first failures.
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	Failures []StepFailure `json:"failures,omitempty"`
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

// StepFailure is the failure of one host.
type StepFailure struct {
	// The host; empty for the manager.
	Host string `json:"host,omitempty"`
	// The reason, one word.
	Reason string `json:"reason"`
	// The cause.
	Message string `json:"message"`
}
