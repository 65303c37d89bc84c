package lifecycle

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/spec/hostroles"
	"slipway.dev/slipway/internal/status"
)

// nodesTime limits the query of a cluster's nodes after an operation.
const nodesTime = 10 * time.Second

// nodeStatuses returns the status of the hosts' nodes from the cluster. A message reports that
// the cluster has no such node or does not respond.
func (p *prepared) nodeStatuses(ctx context.Context) []v1alpha1.NodeStatus {
	ctx, cancel := context.WithTimeout(ctx, nodesTime)
	defer cancel()
	seen, err := p.seenNodes(ctx)
	var out []v1alpha1.NodeStatus
	for _, h := range p.env.Cluster.Spec.Hosts {
		if !hostroles.RunsKubelet(h.Roles) {
			continue
		}
		n := v1alpha1.NodeStatus{Name: h.Name, InternalIP: module.InternalAddress(h), Roles: h.Roles, Message: "the cluster has no such node"}
		if err != nil {
			n.Message = err.Error()
		}
		n.MachineID = p.machineID(n)
		if i := slices.IndexFunc(seen, func(o corev1.Node) bool { return o.Name == h.Name }); i >= 0 {
			st := kube.NodeStateOf(&seen[i])
			n.Version, n.Ready, n.Message = st.Version, st.Ready, st.Message
			n.MachineID = cmp.Or(st.MachineID, n.MachineID)
		}
		out = append(out, n)
	}
	return out
}

// machineID returns the machine id that a node had when it was last seen. The cluster no
// longer knows the id of a deleted node.
func (p *prepared) machineID(n v1alpha1.NodeStatus) string {
	for _, was := range p.seen {
		if was.Name == n.Name && was.InternalIP == n.InternalIP {
			return was.MachineID
		}
	}
	return ""
}

// noteNodes sets the nodes in the status of a cluster. If the status lists only some, it saves
// all of them.
func (p *prepared) noteNodes(ctx context.Context, st *v1alpha1.ClusterStatus, nodes []v1alpha1.NodeStatus) error {
	status.SetNodes(st, nodes)
	if status.ListsAllNodes(st) {
		return nil
	}
	return p.svc.Records.Clusters().SaveNodes(ctx, p.env.Cluster.Name, nodes)
}

func (p *prepared) seenNodes(ctx context.Context) ([]corev1.Node, error) {
	i := slices.IndexFunc(p.hosts, func(h *engine.Host) bool { return p.env.IsFirst(h) && h.Conn != nil })
	if i < 0 {
		return nil, savedstate.ErrNotFound
	}
	conf, err := p.svc.Records.Kubeconfigs().Load(ctx, p.env.Cluster.Name)
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(p.env.Cluster.Spec.ControlPlaneEndpoint.Port)
	client, err := kube.New(conf, p.hosts[i].Conn.DialContext, kube.Options{Address: net.JoinHostPort("127.0.0.1", port)})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Nodes().List(ctx)
}
