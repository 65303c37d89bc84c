// +kubebuilder:object:generate=true
// +groupName=slipway.dev

// Package v1alpha1 has the types of group slipway.dev: Cluster, which users write,
// Operation, which each run saves, and OperationLog, a part of the journal of a run. It
// imports only apimachinery, so that other programs can use the types without Slipway.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the API.
const (
	Group      = "slipway.dev"
	Version    = "v1alpha1"
	APIVersion = Group + "/" + Version

	// LabelCluster is the label of an object with the name of its cluster.
	LabelCluster = Group + "/cluster"
)

// AnnotationProtection is the annotation of a Cluster that cannot be deleted, unless its value
// is "false".
const AnnotationProtection = Group + "/deletion-protection"

// IsProtected reports whether the Cluster cannot be deleted.
func (c *Cluster) IsProtected() bool {
	value, ok := c.Annotations[AnnotationProtection]
	return ok && value != "false"
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=slc,categories=slipway
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=.status.version
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=.status.conditions[?(@.type=="Ready")].status
// +kubebuilder:printcolumn:name=Attention,type=string,JSONPath=.status.conditions[?(@.type=="NeedsAttention")].reason
// +kubebuilder:printcolumn:name=Endpoint,type=string,JSONPath=.status.endpoint,priority=1
// +kubebuilder:printcolumn:name=Operation,type=string,JSONPath=.status.operation,priority=1
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="the name of a cluster has at most 40 characters: a-z, 0-9 and '-', with a letter or digit first and last"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Created' && c.status == 'True')) || (has(self.spec.kubernetes) && has(self.spec.kubernetes.dnsDomain) && self.spec.kubernetes.dnsDomain != '' ? self.spec.kubernetes.dnsDomain : 'cluster.local') == (has(oldSelf.spec.kubernetes) && has(oldSelf.spec.kubernetes.dnsDomain) && oldSelf.spec.kubernetes.dnsDomain != '' ? oldSelf.spec.kubernetes.dnsDomain : 'cluster.local')",message="this field cannot change while the cluster exists",fieldPath=".spec.kubernetes.dnsDomain"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Created' && c.status == 'True')) || (has(self.spec.etcd) && has(self.spec.etcd.type) && self.spec.etcd.type != '' ? self.spec.etcd.type : 'stacked') == (has(oldSelf.spec.etcd) && has(oldSelf.spec.etcd.type) && oldSelf.spec.etcd.type != '' ? oldSelf.spec.etcd.type : 'stacked')",message="this field cannot change while the cluster exists",fieldPath=".spec.etcd.type"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Created' && c.status == 'True')) || (has(self.spec.network) && has(self.spec.network.plugin) && self.spec.network.plugin != '' ? self.spec.network.plugin : 'flannel') == (has(oldSelf.spec.network) && has(oldSelf.spec.network.plugin) && oldSelf.spec.network.plugin != '' ? oldSelf.spec.network.plugin : 'flannel')",message="this field cannot change while the cluster exists",fieldPath=".spec.network.plugin"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Created' && c.status == 'True')) || (has(self.spec.network) && has(self.spec.network.podCIDR) && self.spec.network.podCIDR.size() > 0 ? self.spec.network.podCIDR : ['10.244.0.0/16']) == (has(oldSelf.spec.network) && has(oldSelf.spec.network.podCIDR) && oldSelf.spec.network.podCIDR.size() > 0 ? oldSelf.spec.network.podCIDR : ['10.244.0.0/16'])",message="this field cannot change while the cluster exists",fieldPath=".spec.network.podCIDR"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Created' && c.status == 'True')) || (has(self.spec.network) && has(self.spec.network.serviceCIDR) && self.spec.network.serviceCIDR.size() > 0 ? self.spec.network.serviceCIDR : ['10.96.0.0/16']) == (has(oldSelf.spec.network) && has(oldSelf.spec.network.serviceCIDR) && oldSelf.spec.network.serviceCIDR.size() > 0 ? oldSelf.spec.network.serviceCIDR : ['10.96.0.0/16'])",message="this field cannot change while the cluster exists",fieldPath=".spec.network.serviceCIDR"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Created' && c.status == 'True')) || (has(self.spec.controlPlaneEndpoint) && has(self.spec.controlPlaneEndpoint.port) && self.spec.controlPlaneEndpoint.port != 0 ? self.spec.controlPlaneEndpoint.port : 6443) == (has(oldSelf.spec.controlPlaneEndpoint) && has(oldSelf.spec.controlPlaneEndpoint.port) && oldSelf.spec.controlPlaneEndpoint.port != 0 ? oldSelf.spec.controlPlaneEndpoint.port : 6443)",message="this field cannot change while the cluster exists",fieldPath=".spec.controlPlaneEndpoint.port"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Created' && c.status == 'True')) || (has(self.spec.controlPlaneEndpoint) && has(self.spec.controlPlaneEndpoint.domain) && self.spec.controlPlaneEndpoint.domain != '' ? self.spec.controlPlaneEndpoint.domain : 'api.' + self.metadata.name + '.internal') == (has(oldSelf.spec.controlPlaneEndpoint) && has(oldSelf.spec.controlPlaneEndpoint.domain) && oldSelf.spec.controlPlaneEndpoint.domain != '' ? oldSelf.spec.controlPlaneEndpoint.domain : 'api.' + self.metadata.name + '.internal')",message="this field cannot change while the cluster exists",fieldPath=".spec.controlPlaneEndpoint.domain"

// Cluster is a Kubernetes cluster on existing hosts.
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The wanted state.
	Spec ClusterSpec `json:"spec"`
	// The observed state.
	Status ClusterStatus `json:"status,omitempty"`
}

// +kubebuilder:object:root=true

// ClusterList is a list of clusters.
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Cluster `json:"items"`
}

// ClusterSpec is the wanted state of a cluster.
type ClusterSpec struct {
	// The machines, at least one. At least one has the role `control-plane`.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +listType=map
	// +listMapKey=name
	Hosts []Host `json:"hosts"`
	// Defaults for every host.
	SSH SSH `json:"ssh,omitempty"`
	// The name and address of the API.
	ControlPlaneEndpoint ControlPlaneEndpoint `json:"controlPlaneEndpoint,omitempty"`
	// The version and the settings of the components.
	Kubernetes Kubernetes `json:"kubernetes,omitempty"`
	// The data store of the cluster.
	Etcd Etcd `json:"etcd,omitempty"`
	// The pod network.
	Network Network `json:"network,omitempty"`
	// The container runtime.
	ContainerRuntime ContainerRuntime `json:"containerRuntime,omitempty"`
	// Registries for other images.
	Registry Registry `json:"registry,omitempty"`
	// Name resolution of hosts and pods.
	DNS DNS `json:"dns,omitempty"`
	// The preparation of the hosts.
	System System `json:"system,omitempty"`
	// Scripts, in the order in which they run.
	// +listType=map
	// +listMapKey=name
	Hooks []Hook `json:"hooks,omitempty"`
	// The add-ons. Each one is installed completely before the next one starts.
	// +listType=map
	// +listMapKey=name
	Addons []Addon `json:"addons,omitempty"`
	// The content to install. A path begins with `/`, `./`, `../` or `~`; any other
	// value is a reference to a registry. Default: an existing bundle of this version,
	// else Slipway builds one.
	Bundle string `json:"bundle,omitempty"`
	// One of these keys must have signed the bundle (`ed25519:…`). Otherwise the bundle
	// is rejected before any host is changed, and Slipway does not build one. Default:
	// any bundle is accepted.
	// +listType=atomic
	BundleKeys []string `json:"bundleKeys,omitempty"`
	// Secrets and ConfigMaps in the namespace of the cluster. Their keys are the files that
	// other fields name. Later sources override earlier ones. Only the management plane
	// reads them; the command line reads local files.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	FilesFrom []FilesSource `json:"filesFrom,omitempty"`
	// `Automatic`: the management plane starts an operation when this object changes.
	// `Manual`: it waits until a user approves the plan. The command line asks, except with
	// `--yes`. Default: `Automatic`.
	// +kubebuilder:validation:Enum=Automatic;Manual
	Approval ApprovalMode `json:"approval,omitempty"`
	// `true`: neither `slipway create` and `slipway apply` with this file nor the management
	// plane change the cluster. Other commands do. Default: `false`.
	Paused bool `json:"paused,omitempty"`
	// The effect of a deletion of this object on the hosts. `Delete`: the cluster is
	// deleted. `Retain`: the hosts are not changed. Default: `Retain`.
	// +kubebuilder:validation:Enum=Delete;Retain
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
	// The reaction of the management plane to hosts that differ from this object.
	// `Report`: it sets the condition `Drifted`. `Repair`: it also starts an operation.
	// Default: `Report`.
	// +kubebuilder:validation:Enum=Report;Repair
	DriftPolicy DriftPolicy `json:"driftPolicy,omitempty"`
	// The periods in which the management plane may start operations automatically: repairs,
	// scheduled operations, and automatic attempts. Operations that a change of this object or a
	// request of a user causes do not wait for them.
	Maintenance Maintenance `json:"maintenance,omitempty"`
	// The automatic attempts of the management plane after a failure. Without it, a failed
	// operation waits for a user. Default: none.
	RetryPolicy *RetryPolicy `json:"retryPolicy,omitempty"`
}

// FilesSource is a Secret or a ConfigMap with files; exactly one field is set. Secrets of Slipway itself, whose names
// begin with `slipway.` or `slipway-plan.`, cannot be used.
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) != has(self.configMapRef)",message="exactly one of secretRef and configMapRef must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || !self.secretRef.name.startsWith('slipway.') && !self.secretRef.name.startsWith('slipway-plan.')",message="Secrets whose names begin with 'slipway.' or 'slipway-plan.' belong to Slipway"
type FilesSource struct {
	// A Secret.
	SecretRef *LocalReference `json:"secretRef,omitempty"`
	// A ConfigMap.
	ConfigMapRef *LocalReference `json:"configMapRef,omitempty"`
}

// LocalReference names an object in the same namespace.
type LocalReference struct {
	// The name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ApprovalMode selects who approves the plan of an operation.
type ApprovalMode string

// The approval modes.
const (
	ApprovalAutomatic ApprovalMode = "Automatic"
	ApprovalManual    ApprovalMode = "Manual"
)

// DeletionPolicy selects the effect of the deletion of a Cluster object on its hosts.
type DeletionPolicy string

// The deletion policies.
const (
	DeletionDelete DeletionPolicy = "Delete"
	DeletionRetain DeletionPolicy = "Retain"
)

// DriftPolicy selects the reaction to hosts that differ from the wanted state.
type DriftPolicy string

// The drift policies.
const (
	DriftReport DriftPolicy = "Report"
	DriftRepair DriftPolicy = "Repair"
)

// Maintenance limits when automatic operations start.
type Maintenance struct {
	// The windows. Without any, such operations start at any time.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Windows []MaintenanceWindow `json:"windows,omitempty"`
}

// MaintenanceWindow is a period that repeats.
type MaintenanceWindow struct {
	// The days on which the window starts: `Mon`, `Tue`, `Wed`, `Thu`, `Fri`, `Sat`, `Sun`.
	// Default: every day.
	// +kubebuilder:validation:items:Enum=Mon;Tue;Wed;Thu;Fri;Sat;Sun
	// +listType=atomic
	Days []string `json:"days,omitempty"`
	// The time at which the window starts: `22:30`.
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`
	// The time after `start` in which operations may begin: `1m` to `24h`.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	// +kubebuilder:validation:XValidation:rule=`duration(self) >= duration("1m") && duration(self) <= duration("24h")`,message="the duration must be from 1m to 24h"
	Duration *metav1.Duration `json:"duration"`
	// The time zone of `start`, such as `Europe/Berlin`. Default: `UTC`.
	TimeZone string `json:"timeZone,omitempty"`
}

// RetryPolicy limits the automatic attempts of failed operations. Failures with the error codes
// `UserInput` and `Credentials` are not repeated, because another attempt would fail too.
type RetryPolicy struct {
	// The number of automatic attempts after a failure: 1 to 10.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	Attempts int32 `json:"attempts"`
	// The time until the first automatic attempt: `1s` to `10m`. Each further time is twice as
	// long, at most 10 minutes. Default: `1m`.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	// +kubebuilder:validation:XValidation:rule=`duration(self) >= duration("1s") && duration(self) <= duration("10m")`,message="the duration must be from 1s to 10m"
	Backoff *metav1.Duration `json:"backoff,omitempty"`
}
