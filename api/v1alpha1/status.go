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

// ClusterStatus is the observed state of a cluster.
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
	// The nodes.
	// +listType=map
	// +listMapKey=name
	Nodes []NodeStatus `json:"nodes,omitempty"`
	// The ID of the latest operation.
	Operation string `json:"operation,omitempty"`
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
	// Why the node is not ready.
	Message string `json:"message,omitempty"`
}
