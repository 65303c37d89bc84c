package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +kubebuilder:object:root=true

// Operation is one recorded run of a pipeline.
type Operation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   OperationSpec   `json:"spec"`
	Status OperationStatus `json:"status,omitempty"`
}

// OperationSpec describes the requested operation.
type OperationSpec struct {
	Cluster string `json:"cluster"`
	// create, apply, add-nodes, delete-nodes, forget-nodes, upgrade, rollback-upgrade, delete,
	// rollback, init-os, init-registry, renew-certs, rotate-ca, etcd-defrag, etcd-restore, etcd-rescue,
	// reboot-nodes
	Type       string `json:"type"`
	PlanDigest string `json:"planDigest,omitempty"`
	// IgnoredChecks lists precheck findings that the user chose to ignore.
	IgnoredChecks []string `json:"ignoredChecks,omitempty"`
	// Nodes lists the hosts of add-nodes, delete-nodes and reboot-nodes, and the lost
	// hosts of etcd-rescue.
	Nodes []string `json:"nodes,omitempty"`
	// Force deletes pods that cannot be evicted. Forget removes hosts that do not
	// respond.
	Force  bool `json:"force,omitempty"`
	Forget bool `json:"forget,omitempty"`
	// KeepFailed keeps settings on a node that is not healthy with them.
	KeepFailed bool `json:"keepFailed,omitempty"`
	// DrainTimeout limits the drain of a host that is removed, upgraded or rebooted.
	DrainTimeout metav1.Duration `json:"drainTimeout,omitzero"`
	// MaxUnavailable limits how many workers an upgrade or reboot-nodes takes out of
	// service at once: a number, or a percentage.
	MaxUnavailable string `json:"maxUnavailable,omitempty"`
	// Version is the final Kubernetes version of an upgrade: each minor version on the
	// path is a separate operation. File is the path of the cluster file: "" if only
	// the version was given, and - for standard input.
	Version string `json:"version,omitempty"`
	File    string `json:"file,omitempty"`
	// Certificates names the certificates that renew-certs renews; none means all that
	// are due. AllCertificates renews all of them, whatever their remaining validity.
	// Within renews certificates that expire within this time.
	Certificates    []string        `json:"certificates,omitempty"`
	AllCertificates bool            `json:"allCertificates,omitempty"`
	Within          metav1.Duration `json:"within,omitzero"`
	// Backup is the backup file of etcd-restore, and Identity the file of the key that
	// decrypts it. Restores identifies the content of the backup, or the member whose
	// data etcd-rescue uses, so that a resume does not continue with other data.
	Backup   string `json:"backup,omitempty"`
	Identity string `json:"identity,omitempty"`
	Restores string `json:"restores,omitempty"`
	// SignedBy is an additional public key with which etcd-restore verified the set.
	// Unverified reports whether the set was used without a valid signature. WithKeys
	// reports whether hosts got lost keys from such a set. Verified reports whether a
	// trusted key signed the set.
	SignedBy   string `json:"signedBy,omitempty"`
	Unverified bool   `json:"unverified,omitempty"`
	WithKeys   bool   `json:"withKeys,omitempty"`
	Verified   bool   `json:"verified,omitempty"`
	// Rotates maps the name of each CA or key that rotate-ca rotates to the ID of the
	// old one, so that the new one is not rotated again.
	Rotates map[string]string `json:"rotates,omitempty"`
	// Boots maps each host of reboot-nodes to the ID of the boot that must end, so that a
	// host is not rebooted twice.
	Boots map[string]string `json:"boots,omitempty"`
}

// OperationPhase is the state of an operation.
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
	Phase     OperationPhase  `json:"phase,omitempty"`
	StartTime *metav1.Time    `json:"startTime,omitempty"`
	EndTime   *metav1.Time    `json:"endTime,omitempty"`
	Steps     []OperationStep `json:"steps,omitempty"`
	Message   string          `json:"message,omitempty"`
}

// OperationStep is one task on all its hosts.
type OperationStep struct {
	Task      string        `json:"task"`
	Title     string        `json:"title,omitempty"`
	StartTime *metav1.Time  `json:"startTime,omitempty"`
	EndTime   *metav1.Time  `json:"endTime,omitempty"`
	Hosts     HostCounts    `json:"hosts"`
	Failures  []StepFailure `json:"failures,omitempty"` // at most ten
}

// HostCounts counts hosts by outcome.
type HostCounts struct {
	Done    int `json:"done,omitempty"` // already in the wanted state
	Changed int `json:"changed,omitempty"`
	Failed  int `json:"failed,omitempty"`
	Skipped int `json:"skipped,omitempty"`
}

// StepFailure is the failure of one host.
type StepFailure struct {
	Host    string `json:"host,omitempty"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}
