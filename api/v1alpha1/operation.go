package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Operation is one recorded run of a pipeline.
type Operation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   OperationSpec   `json:"spec"`
	Status OperationStatus `json:"status,omitempty"`
}

// OperationSpec is what was asked for.
type OperationSpec struct {
	Cluster    string `json:"cluster"`
	Type       string `json:"type"` // create, apply, add-nodes, delete-nodes, forget-nodes, upgrade, rollback-upgrade, delete, rollback, init-os, init-registry, renew-certs, rotate-ca, etcd-defrag, etcd-restore, etcd-rescue
	PlanDigest string `json:"planDigest,omitempty"`
	// IgnoredChecks are precheck findings the user chose to pass over.
	IgnoredChecks []string `json:"ignoredChecks,omitempty"`
	// Nodes are the hosts that add-nodes and delete-nodes are about, and those that
	// etcd-rescue has as lost.
	Nodes []string `json:"nodes,omitempty"`
	// Force and Forget are how hosts were to leave: pods deleted that cannot
	// be evicted, hosts given up that do not answer.
	Force  bool `json:"force,omitempty"`
	Forget bool `json:"forget,omitempty"`
	// KeepFailed leaves settings with which a node does not serve where they are.
	KeepFailed bool `json:"keepFailed,omitempty"`
	// DrainTimeout is how long the pods of a host that leaves, or is upgraded, were
	// waited for.
	DrainTimeout metav1.Duration `json:"drainTimeout,omitzero"`
	// MaxUnavailable is how many workers an upgrade has out of service at once: a
	// number, or a share of them.
	MaxUnavailable string `json:"maxUnavailable,omitempty"`
	// Version is the version of Kubernetes that an upgrade goes to in the end: each
	// minor on the way is an operation of its own. File is the path of the cluster file
	// that it goes by: "" if the version alone was named, and - for standard input.
	Version string `json:"version,omitempty"`
	File    string `json:"file,omitempty"`
	// Certificates are those that renew-certs was to renew, by name, and none is
	// all that are due: AllCertificates whatever is left of their time, or what
	// ends Within a time.
	Certificates    []string        `json:"certificates,omitempty"`
	AllCertificates bool            `json:"allCertificates,omitempty"`
	Within          metav1.Duration `json:"within,omitzero"`
	// Backup is the file that etcd-restore was given, Identity that of the key
	// that opens it, and Restores what is in it, or whose data etcd-rescue goes by,
	// so that another is not gone on with.
	Backup   string `json:"backup,omitempty"`
	Identity string `json:"identity,omitempty"`
	Restores string `json:"restores,omitempty"`
	// SignedBy is the public key besides the cluster's own by which etcd-restore verified
	// the set, and Unverified is that it was used without a valid signature; WithKeys is
	// that hosts got keys that they had lost from such a set. Verified is that a trusted key
	// had signed it.
	SignedBy   string `json:"signedBy,omitempty"`
	Unverified bool   `json:"unverified,omitempty"`
	WithKeys   bool   `json:"withKeys,omitempty"`
	Verified   bool   `json:"verified,omitempty"`
	// Rotates is what rotate-ca exchanges, by name, with the id of what goes: what
	// has come in its place is not exchanged again.
	Rotates map[string]string `json:"rotates,omitempty"`
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

// OperationStatus is how it went. Its size is bounded whatever the number of
// hosts; the journal has all.
type OperationStatus struct {
	Phase     OperationPhase  `json:"phase,omitempty"`
	StartTime *metav1.Time    `json:"startTime,omitempty"`
	EndTime   *metav1.Time    `json:"endTime,omitempty"`
	Steps     []OperationStep `json:"steps,omitempty"`
	Message   string          `json:"message,omitempty"`
}

// OperationStep is one task over all its hosts.
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
	Done    int `json:"done,omitempty"` // already as wanted
	Changed int `json:"changed,omitempty"`
	Failed  int `json:"failed,omitempty"`
	Skipped int `json:"skipped,omitempty"`
}

// StepFailure is one host's failure.
type StepFailure struct {
	Host    string `json:"host,omitempty"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}
