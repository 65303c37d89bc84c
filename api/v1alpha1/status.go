package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Phase is the state of a cluster.
type Phase string

// The phases of a cluster.
const (
	PhasePending       Phase = "Pending"
	PhasePrechecking   Phase = "Prechecking"
	PhaseCreating      Phase = "Creating"
	PhaseRunning       Phase = "Running"
	PhaseScaling       Phase = "Scaling"
	PhaseUpgrading     Phase = "Upgrading"
	PhaseReconfiguring Phase = "Reconfiguring"
	PhasePaused        Phase = "Paused"
	PhaseFailed        Phase = "Failed"
	PhaseDeleting      Phase = "Deleting"
)

// Limits of a ClusterStatus, which keep it below MaxStatusSize.
const (
	MaxNodes       = 100
	MaxNodeMessage = 512 // bytes

	MaxRecentOperations = 5

	// MaxConditionMessage is the limit of the message of a condition, in bytes.
	MaxConditionMessage = 1024
)

// ClusterStatus is the observed state of a cluster. It has at most 64 KiB, whatever the number
// of hosts.
type ClusterStatus struct {
	// `Pending`, `Prechecking`, `Creating`, `Running`, `Scaling`, `Upgrading`,
	// `Reconfiguring`, `Paused`, `Failed` or `Deleting`.
	Phase Phase `json:"phase,omitempty"`
	// Conditions, as in other Kubernetes objects.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// The Kubernetes version.
	Version string `json:"version,omitempty"`
	// The network plugin.
	Plugin string `json:"networkPlugin,omitempty"`
	// The URL of the API.
	Endpoint string `json:"endpoint,omitempty"`
	// The numbers of all nodes.
	NodeCounts NodeCounts `json:"nodeCounts,omitzero"`
	// The nodes. If the cluster has more than 100 nodes: only nodes that are not ready, at
	// most 100.
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=name
	Nodes []NodeStatus `json:"nodes,omitempty"`
	// The ID of the latest operation.
	Operation string `json:"operation,omitempty"`
	// The generation of this object that the management plane has seen.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// The digest of the wanted state and its files that the latest successful operation applied.
	AppliedIntent string `json:"appliedIntent,omitempty"`
	// The latest operations, newest first: at most 5.
	// +kubebuilder:validation:MaxItems=5
	// +listType=atomic
	RecentOperations []RecentOperation `json:"recentOperations,omitempty"`
	// The state of the cluster at a glance.
	Summary *ClusterSummary `json:"summary,omitempty"`
}

// RecentOperation is an operation in the status of its cluster.
type RecentOperation struct {
	// The name of the Operation.
	Name string `json:"name"`
	// The kind of the operation.
	Kind string `json:"kind"`
	// The state of the operation.
	State OperationState `json:"state,omitempty"`
	// The end of its latest attempt.
	EndTime *metav1.Time `json:"endTime,omitempty"`
}

// NodeCounts counts the nodes of a cluster.
type NodeCounts struct {
	// All nodes.
	Total int `json:"total,omitempty"`
	// The ready nodes.
	Ready int `json:"ready,omitempty"`
	// The control planes.
	ControlPlanes int `json:"controlPlanes,omitempty"`
	// The ready control planes.
	ReadyControlPlanes int `json:"readyControlPlanes,omitempty"`
}

// NodeStatus is the observed state of one node.
type NodeStatus struct {
	// The name of the node.
	Name string `json:"name"`
	// The address of the node.
	InternalIP string `json:"internalIP,omitempty"`
	// The ID of its machine, when Slipway last saw it.
	MachineID string `json:"machineID,omitempty"`
	// The roles of the node.
	// +listType=set
	Roles []Role `json:"roles,omitempty"`
	// The version of its kubelet.
	Version string `json:"version,omitempty"`
	// Whether the node is ready.
	Ready bool `json:"ready"`
	// Why the node is not ready, at most 512 bytes. `…` at its end marks a shortened text.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}
