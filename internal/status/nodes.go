package status

import (
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
)

// nodeRoom is the limit of the nodes in the status of a cluster, in bytes. The rest is for
// conditions and the other fields.
const nodeRoom = 40 << 10

// minNodeMessage is the shortest limit of a node's message, in bytes, before nodes are omitted.
const minNodeMessage = 32

// SetNodes sets the nodes of a cluster and their counts. If there are too many nodes, the status
// lists only nodes that are not ready, control planes first, and long messages are cut.
func SetNodes(st *v1alpha1.ClusterStatus, nodes []v1alpha1.NodeStatus) {
	st.NodeCounts = v1alpha1.NodeCounts{Total: len(nodes)}
	for _, n := range nodes {
		controlPlane := isControlPlane(n)
		if n.Ready {
			st.NodeCounts.Ready++
		}
		if controlPlane {
			st.NodeCounts.ControlPlanes++
		}
		if controlPlane && n.Ready {
			st.NodeCounts.ReadyControlPlanes++
		}
	}
	st.Nodes = slices.Clone(nodes)
	if len(nodes) > v1alpha1.MaxNodes {
		st.Nodes = slices.DeleteFunc(st.Nodes, func(n v1alpha1.NodeStatus) bool { return n.Ready })
		slices.SortStableFunc(st.Nodes, func(a, b v1alpha1.NodeStatus) int { return compareBools(isControlPlane(a), isControlPlane(b)) })
		st.Nodes = st.Nodes[:min(len(st.Nodes), v1alpha1.MaxNodes)]
	}
	for limit := v1alpha1.MaxNodeMessage; limit >= minNodeMessage; limit /= 2 {
		for i := range st.Nodes {
			st.Nodes[i].Message = LimitMessage(st.Nodes[i].Message, limit)
		}
		if sizeOf(st.Nodes) <= nodeRoom {
			break
		}
	}
	st.Nodes = firstOf(st.Nodes, nodeRoom)
}

func isControlPlane(n v1alpha1.NodeStatus) bool {
	return slices.Contains(n.Roles, v1alpha1.RoleControlPlane)
}

// ListsAllNodes reports whether the status of a cluster lists all its nodes.
func ListsAllNodes(st *v1alpha1.ClusterStatus) bool { return st.NodeCounts.Total <= len(st.Nodes) }
