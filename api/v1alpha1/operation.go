package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=slop,categories=slipway
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="the name of an operation has at most 63 characters: a-z, 0-9 and '-', with a letter or digit first and last"
// +kubebuilder:validation:XValidation:rule=`has(oldSelf.spec.approvedPlan) && oldSelf.spec.approvedPlan != "" || !has(self.spec.approvedPlan) || self.spec.approvedPlan == "" || has(self.status) && has(self.status.plan) && self.spec.approvedPlan == self.status.plan.digest`,message="an approval has the value of status.plan.digest",fieldPath=".spec.approvedPlan"
// +kubebuilder:selectablefield:JSONPath=.spec.clusterRef.name
// +kubebuilder:printcolumn:name=Cluster,type=string,JSONPath=.spec.clusterRef.name
// +kubebuilder:printcolumn:name=Kind,type=string,JSONPath=.spec.kind
// +kubebuilder:printcolumn:name=State,type=string,JSONPath=.status.state
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=.status.reason,priority=1
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

// OperationSpec describes the requested operation. It cannot change after its creation,
// except for `approvedPlan`, `cancelled` and `retry`. An empty value counts as an absent
// field, so that clients in Go can write an object that they have read. So each field of
// the parameters needs a rule.
//
// +kubebuilder:validation:XValidation:rule=`self.kind == oldSelf.kind`,message="this field cannot change",fieldPath=".kind"
// +kubebuilder:validation:XValidation:rule=`(has(self.intentDigest) ? self.intentDigest : "") == (has(oldSelf.intentDigest) ? oldSelf.intentDigest : "")`,message="this field cannot change",fieldPath=".intentDigest"
// +kubebuilder:validation:XValidation:rule=`duration(has(self.deadline) ? self.deadline : "0s") == duration(has(oldSelf.deadline) ? oldSelf.deadline : "0s")`,message="this field cannot change",fieldPath=".deadline"
// +kubebuilder:validation:XValidation:rule=`(has(self.executor) ? self.executor : "") == (has(oldSelf.executor) ? oldSelf.executor : "")`,message="this field cannot change",fieldPath=".executor"
// +kubebuilder:validation:XValidation:rule=`!has(oldSelf.approvedPlan) || oldSelf.approvedPlan == "" || has(self.approvedPlan) && self.approvedPlan == oldSelf.approvedPlan`,message="an approval cannot change or be removed",fieldPath=".approvedPlan"
// +kubebuilder:validation:XValidation:rule=`!has(oldSelf.cancelled) || !oldSelf.cancelled || has(self.cancelled) && self.cancelled`,message="a cancelled operation cannot continue",fieldPath=".cancelled"
// +kubebuilder:validation:XValidation:rule=`(has(self.retry) ? self.retry : 0) >= (has(oldSelf.retry) ? oldSelf.retry : 0)`,message="this number can only grow",fieldPath=".retry"
type OperationSpec struct {
	// The cluster of the operation, in the same namespace.
	ClusterRef ClusterReference `json:"clusterRef"`
	// `create`, `apply`, `add-nodes`, `delete-nodes`, `forget-nodes`, `upgrade`,
	// `rollback-upgrade`, `delete`, `rollback`, `init-os`, `init-registry`, `renew-certs`,
	// `rotate-ca`, `etcd-defrag`, `etcd-snapshot`, `etcd-drill`, `etcd-restore`, `etcd-rescue`,
	// `reboot-nodes` or `resume`.
	// +kubebuilder:validation:Enum=add-nodes;apply;create;delete;delete-nodes;etcd-defrag;etcd-drill;etcd-rescue;etcd-restore;etcd-snapshot;forget-nodes;init-os;init-registry;reboot-nodes;renew-certs;resume;rollback;rollback-upgrade;rotate-ca;upgrade
	Kind string `json:"kind"`
	// The details of the request. Each kind uses some of them.
	// +kubebuilder:default={}
	// +kubebuilder:validation:XValidation:rule=`(has(self.ignoredChecks) ? self.ignoredChecks : []) == (has(oldSelf.ignoredChecks) ? oldSelf.ignoredChecks : [])`,message="this field cannot change",fieldPath=".ignoredChecks"
	// +kubebuilder:validation:XValidation:rule=`(has(self.nodes) ? self.nodes : []) == (has(oldSelf.nodes) ? oldSelf.nodes : [])`,message="this field cannot change",fieldPath=".nodes"
	// +kubebuilder:validation:XValidation:rule=`(has(self.force) && self.force) == (has(oldSelf.force) && oldSelf.force)`,message="this field cannot change",fieldPath=".force"
	// +kubebuilder:validation:XValidation:rule=`(has(self.forget) && self.forget) == (has(oldSelf.forget) && oldSelf.forget)`,message="this field cannot change",fieldPath=".forget"
	// +kubebuilder:validation:XValidation:rule=`(has(self.takeOver) && self.takeOver) == (has(oldSelf.takeOver) && oldSelf.takeOver)`,message="this field cannot change",fieldPath=".takeOver"
	// +kubebuilder:validation:XValidation:rule=`(has(self.keepFailed) && self.keepFailed) == (has(oldSelf.keepFailed) && oldSelf.keepFailed)`,message="this field cannot change",fieldPath=".keepFailed"
	// +kubebuilder:validation:XValidation:rule=`duration(has(self.drainTimeout) ? self.drainTimeout : "0s") == duration(has(oldSelf.drainTimeout) ? oldSelf.drainTimeout : "0s")`,message="this field cannot change",fieldPath=".drainTimeout"
	// +kubebuilder:validation:XValidation:rule=`(has(self.maxUnavailable) ? self.maxUnavailable : "") == (has(oldSelf.maxUnavailable) ? oldSelf.maxUnavailable : "")`,message="this field cannot change",fieldPath=".maxUnavailable"
	// +kubebuilder:validation:XValidation:rule=`(has(self.version) ? self.version : "") == (has(oldSelf.version) ? oldSelf.version : "")`,message="this field cannot change",fieldPath=".version"
	// +kubebuilder:validation:XValidation:rule=`(has(self.file) ? self.file : "") == (has(oldSelf.file) ? oldSelf.file : "")`,message="this field cannot change",fieldPath=".file"
	// +kubebuilder:validation:XValidation:rule=`(has(self.certificates) ? self.certificates : []) == (has(oldSelf.certificates) ? oldSelf.certificates : [])`,message="this field cannot change",fieldPath=".certificates"
	// +kubebuilder:validation:XValidation:rule=`(has(self.allCertificates) && self.allCertificates) == (has(oldSelf.allCertificates) && oldSelf.allCertificates)`,message="this field cannot change",fieldPath=".allCertificates"
	// +kubebuilder:validation:XValidation:rule=`duration(has(self.within) ? self.within : "0s") == duration(has(oldSelf.within) ? oldSelf.within : "0s")`,message="this field cannot change",fieldPath=".within"
	// +kubebuilder:validation:XValidation:rule=`(has(self.backup) ? self.backup : "") == (has(oldSelf.backup) ? oldSelf.backup : "")`,message="this field cannot change",fieldPath=".backup"
	// +kubebuilder:validation:XValidation:rule=`(has(self.identity) ? self.identity : "") == (has(oldSelf.identity) ? oldSelf.identity : "")`,message="this field cannot change",fieldPath=".identity"
	// +kubebuilder:validation:XValidation:rule=`(has(self.restores) ? self.restores : "") == (has(oldSelf.restores) ? oldSelf.restores : "")`,message="this field cannot change",fieldPath=".restores"
	// +kubebuilder:validation:XValidation:rule=`(has(self.signedBy) ? self.signedBy : "") == (has(oldSelf.signedBy) ? oldSelf.signedBy : "")`,message="this field cannot change",fieldPath=".signedBy"
	// +kubebuilder:validation:XValidation:rule=`(has(self.unverified) && self.unverified) == (has(oldSelf.unverified) && oldSelf.unverified)`,message="this field cannot change",fieldPath=".unverified"
	// +kubebuilder:validation:XValidation:rule=`(has(self.withKeys) && self.withKeys) == (has(oldSelf.withKeys) && oldSelf.withKeys)`,message="this field cannot change",fieldPath=".withKeys"
	// +kubebuilder:validation:XValidation:rule=`(has(self.verified) && self.verified) == (has(oldSelf.verified) && oldSelf.verified)`,message="this field cannot change",fieldPath=".verified"
	// +kubebuilder:validation:XValidation:rule=`(has(self.rotates) ? self.rotates : {}) == (has(oldSelf.rotates) ? oldSelf.rotates : {})`,message="this field cannot change",fieldPath=".rotates"
	// +kubebuilder:validation:XValidation:rule=`(has(self.boots) ? self.boots : {}) == (has(oldSelf.boots) ? oldSelf.boots : {})`,message="this field cannot change",fieldPath=".boots"
	// +kubebuilder:validation:XValidation:rule=`(has(self.operation) ? self.operation : "") == (has(oldSelf.operation) ? oldSelf.operation : "")`,message="this field cannot change",fieldPath=".operation"
	// +kubebuilder:validation:XValidation:rule=`(has(self.recipients) ? self.recipients : []) == (has(oldSelf.recipients) ? oldSelf.recipients : [])`,message="this field cannot change",fieldPath=".recipients"
	// +kubebuilder:validation:XValidation:rule=`(has(self.fromHost) ? self.fromHost : "") == (has(oldSelf.fromHost) ? oldSelf.fromHost : "")`,message="this field cannot change",fieldPath=".fromHost"
	// +kubebuilder:validation:XValidation:rule=`(has(self.fromCopy) ? self.fromCopy : "") == (has(oldSelf.fromCopy) ? oldSelf.fromCopy : "")`,message="this field cannot change",fieldPath=".fromCopy"
	// +kubebuilder:validation:XValidation:rule=`(has(self.member) ? self.member : "") == (has(oldSelf.member) ? oldSelf.member : "")`,message="this field cannot change",fieldPath=".member"
	Parameters OperationParameters `json:"parameters,omitempty"`
	// The digest of the cluster's wanted state and its files for which the operation was
	// requested. The command line does not set it.
	// +kubebuilder:validation:MaxLength=128
	IntentDigest string `json:"intentDigest,omitempty"`
	// The time limit of each attempt. The management plane stops the operation after it.
	// The command line does not set it.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	Deadline metav1.Duration `json:"deadline,omitzero"`
	// The process that runs the operation. `InProcess`: the management plane itself.
	// `Job`: a Job in the cluster of the operator. `External`: a program that reports its
	// result; it is not available in this version. Without a value, the management plane
	// decides. The command line does not set it.
	// +kubebuilder:validation:Enum=InProcess;Job;External
	Executor ExecutorKind `json:"executor,omitempty"`
	// The digest of the plan that a user approves: the value of `status.plan.digest`.
	// Another plan needs another operation. It cannot change once it is set.
	// +kubebuilder:validation:MaxLength=128
	ApprovedPlan string `json:"approvedPlan,omitempty"`
	// `true`: the operation stops at the next safe point. It cannot be set back.
	Cancelled bool `json:"cancelled,omitempty"`
	// A larger number than before starts another attempt of a failed operation.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Retry int32 `json:"retry,omitempty"`
}

// ClusterReference names the cluster of an operation.
//
// +kubebuilder:validation:XValidation:rule=`self.name == oldSelf.name`,message="this field cannot change",fieldPath=".name"
// +kubebuilder:validation:XValidation:rule=`(has(self.uid) ? self.uid : "") == (has(oldSelf.uid) ? oldSelf.uid : "")`,message="this field cannot change",fieldPath=".uid"
type ClusterReference struct {
	// The name of the cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	Name string `json:"name"`
	// The UID of the Cluster object. A later cluster with the same name is another one. The
	// command line does not set it.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid,omitempty"`
}

// ExecutorKind selects the process that runs an operation.
type ExecutorKind string

// The executors.
const (
	ExecutorInProcess ExecutorKind = "InProcess"
	ExecutorJob       ExecutorKind = "Job"
	ExecutorExternal  ExecutorKind = "External"
)

// OperationParameters are the details of a request.
type OperationParameters struct {
	// The precheck findings that the user chose to ignore.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=atomic
	IgnoredChecks []string `json:"ignoredChecks,omitempty"`
	// The hosts of `add-nodes`, `delete-nodes` and `reboot-nodes`, and the lost hosts of
	// `forget-nodes` and `etcd-rescue`.
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=atomic
	Nodes []string `json:"nodes,omitempty"`
	// The cluster is taken from the manager that manages it, such as a server that no longer exists.
	TakeOver bool `json:"takeOver,omitempty"`
	// Pods that cannot be evicted are deleted.
	Force bool `json:"force,omitempty"`
	// Hosts that do not respond, fail or belong to another cluster are removed from the
	// state, and are not reset.
	Forget bool `json:"forget,omitempty"`
	// Settings remain on a node that is not healthy with them.
	KeepFailed bool `json:"keepFailed,omitempty"`
	// The limit for the drain of a host that is removed, upgraded or rebooted.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
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
	// +kubebuilder:validation:MaxLength=4096
	File string `json:"file,omitempty"`
	// The certificates that `renew-certs` renews. Default: all that are due.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=atomic
	Certificates []string `json:"certificates,omitempty"`
	// `renew-certs` renews all certificates, whatever their remaining validity.
	AllCertificates bool `json:"allCertificates,omitempty"`
	// `renew-certs` renews certificates that expire within this time.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	Within metav1.Duration `json:"within,omitzero"`
	// The backup file of `etcd-restore` and `etcd-drill`. In an API, it is the name of a backup
	// set in the directory of the management plane. Default of `etcd-drill`: the newest set.
	// +kubebuilder:validation:MaxLength=4096
	Backup string `json:"backup,omitempty"`
	// The file of the key that decrypts the backup. In an API, it is a file of
	// `spec.filesFrom` of the Cluster.
	// +kubebuilder:validation:MaxLength=4096
	Identity string `json:"identity,omitempty"`
	// The ID of the content of the backup, or of the member whose data `etcd-rescue` uses. A
	// resume does not continue with other data.
	// +kubebuilder:validation:MaxLength=253
	Restores string `json:"restores,omitempty"`
	// An additional public key that may have signed the set.
	// +kubebuilder:validation:MaxLength=4096
	SignedBy string `json:"signedBy,omitempty"`
	// The set was used without a valid signature.
	Unverified bool `json:"unverified,omitempty"`
	// Hosts got lost keys from an unverified set.
	WithKeys bool `json:"withKeys,omitempty"`
	// A trusted key signed the set.
	Verified bool `json:"verified,omitempty"`
	// The name of each CA or key that `rotate-ca` rotates, with the ID of the old one. The
	// new one is not rotated again.
	// +kubebuilder:validation:MaxProperties=16
	Rotates map[string]string `json:"rotates,omitempty"`
	// Each host of `reboot-nodes`, with the ID of the boot that must end. A host is not
	// rebooted twice.
	// +kubebuilder:validation:MaxProperties=1000
	Boots map[string]string `json:"boots,omitempty"`
	// The operation that `resume` continues, or that `rollback` and `rollback-upgrade` roll
	// back. It must be the latest unfinished operation of the cluster. Default: this one.
	// +kubebuilder:validation:MaxLength=63
	Operation string `json:"operation,omitempty"`
	// The age public keys (`age1…`) for which `etcd-snapshot` encrypts the set. Without any, it
	// is not encrypted.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	Recipients []string `json:"recipients,omitempty"`
	// The host from whose automatic snapshot `etcd-snapshot` makes the set: `HOST` for its
	// newest snapshot, `HOST/FILE` for a certain one. Default: a new snapshot.
	// +kubebuilder:validation:MaxLength=320
	FromHost string `json:"fromHost,omitempty"`
	// The copy target from which `etcd-snapshot` fetches a set: `TARGET` for the newest copy
	// there, `TARGET/FILE` for a certain one. Not with `fromHost`.
	// +kubebuilder:validation:MaxLength=320
	FromCopy string `json:"fromCopy,omitempty"`
	// The host whose etcd data `etcd-rescue` uses. Default: the host with the most recent data.
	// +kubebuilder:validation:MaxLength=63
	Member string `json:"member,omitempty"`
}
