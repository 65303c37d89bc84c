package inspect

import (
	"context"
	"sync"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// A Verdict is a cluster's state in one word.
type Verdict string

// The verdicts.
const (
	Healthy  Verdict = "healthy"
	Degraded Verdict = "degraded" // it works, but there is a problem
	Down     Verdict = "down"     // its API does not respond
	Absent   Verdict = "absent"   // it has no control plane yet
)

// Info is the current state of a cluster: from its API, or from its hosts and the saved
// state if the API does not respond.
type Info struct {
	Name       string         `json:"name"`
	Verdict    Verdict        `json:"verdict"`
	Summary    string         `json:"summary"` // the verdict in one line
	Warnings   diag.List      `json:"warnings"`
	Phase      v1alpha1.Phase `json:"phase"`
	Kubernetes string         `json:"kubernetes"`
	Endpoint   EndpointInfo   `json:"endpoint"`
	Nodes      []NodeInfo     `json:"nodes"`
	Etcd       EtcdInfo       `json:"etcd"`
	// Certificates are sorted by their expiry, earliest first.
	Certificates []Certificate `json:"certificates"`
	AddOns       []AddOn       `json:"addOns"`
	// Operations are the latest few, newest first.
	Operations []OperationInfo `json:"operations"`
	// Next is the next command.
	Next string `json:"next"`
}

// EndpointInfo is the API address and whether the API responds.
type EndpointInfo struct {
	Address string                `json:"address"`
	Mode    v1alpha1.EndpointMode `json:"mode"`
	Answers bool                  `json:"answers"`
	// Through is the host over which the API was queried; "" means from this machine.
	Through string `json:"through,omitempty"`
	Message string `json:"message,omitempty"`
}

// NodeInfo describes a host and its node.
type NodeInfo struct {
	Name    string          `json:"name"`
	Roles   []v1alpha1.Role `json:"roles"`
	Address string          `json:"address"`
	// Version is the kubelet version, from the saved state if the API does not respond.
	Version string `json:"version"`
	// Ready is Ready, NotReady or Unknown.
	Ready       string    `json:"ready"`
	Cordoned    bool      `json:"cordoned,omitempty"`
	Message     string    `json:"message,omitempty"`
	Capacity    Resources `json:"capacity"`
	Allocatable Resources `json:"allocatable"`
	// ResourcesFrom is the source of the resources: api, host or unknown ("").
	ResourcesFrom string `json:"resourcesFrom"`
	OS            string `json:"os"`
	Kernel        string `json:"kernel"`
	Runtime       string `json:"runtime"`
	// Host is "ok" if SSH reaches the host, otherwise the reason.
	Host string `json:"host"`
	// Endpoint is "ok" if the API responds to this node, otherwise the reason; "" if
	// the host could not be queried.
	Endpoint string `json:"endpoint"`
	// Kubelet is the state of its unit; "" if the host could not be queried.
	Kubelet string `json:"kubelet"`
}

// Resources are the resources of a node; empty means unknown.
type Resources struct {
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
	Pods   string `json:"pods,omitempty"`
	Disk   string `json:"disk,omitempty"`
}

// AddOn is a workload of the cluster itself.
type AddOn struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Version   string `json:"version"`
	// Ready and Wanted are numbers of pods; -1 means unknown.
	Ready  int `json:"ready"`
	Wanted int `json:"wanted"`
	// Missing reports whether the cluster should have the add-on but does not.
	Missing bool `json:"missing,omitempty"`
}

// OperationInfo is an operation in one line.
type OperationInfo struct {
	ID      string                  `json:"id"`
	Type    string                  `json:"type"`
	Phase   v1alpha1.OperationState `json:"phase"`
	Created time.Time               `json:"created"`
	Message string                  `json:"message,omitempty"`
}

const (
	// apiTime limits one API request.
	apiTime = 5 * time.Second
	// lastOperations is the number of operations to show.
	lastOperations = 5
)

// Info returns the state of a cluster within a bounded time, even if hosts are down.
// progress, which may be nil, receives events about connecting.
func (in *Inspector) Info(ctx context.Context, name string, progress event.Sink) (*Info, error) {
	c, err := in.c.Clusters.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	ops, err := in.c.Clusters.Operations(ctx, name)
	if err != nil {
		return nil, err
	}
	seen, err := in.c.Records.Clusters().LoadNodes(ctx, c)
	if err != nil {
		return nil, err
	}
	ctx, s, done, err := in.StartSession(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	info := &Info{
		Name: name, Phase: c.Status.Phase, Kubernetes: c.Spec.Kubernetes.Version, Warnings: diag.List{},
		Endpoint: EndpointInfo{Address: s.Env.APIEndpoint(), Mode: c.Spec.ControlPlaneEndpoint.Mode},
		Nodes:    []NodeInfo{}, Certificates: []Certificate{}, AddOns: []AddOn{}, Operations: []OperationInfo{},
		Etcd: EtcdInfo{Type: c.Spec.Etcd.Type, Members: []EtcdMember{}},
	}
	var asked sync.WaitGroup
	var api *apiResult
	asked.Go(func() { api = s.queryAPI(ctx) })
	asked.Go(func() { s.queryEtcd(ctx, &info.Etcd) })
	s.QueryHosts(ctx, in.Limits.Host, progress, s.queryHost)
	asked.Wait()
	for _, h := range s.Hosts {
		if hostroles.RunsKubelet(h.Spec.Roles) {
			info.Nodes = append(info.Nodes, newNodeInfo(h, seen))
		}
		info.Certificates = append(info.Certificates, h.certificates...)
	}
	sortCertificates(info.Certificates)
	info.AddOns = s.expectedAddOns()
	api.addTo(info)
	for _, o := range ops[:min(len(ops), lastOperations)] {
		info.Operations = append(info.Operations, OperationInfo{o.Name, o.Spec.Kind, o.Status.State, o.CreationTimestamp.Time, o.Status.Message})
	}
	s.evaluate(info, c, ops)
	return info, nil
}

// newNodeInfo describes a node from its host and from the nodes that were last seen.
func newNodeInfo(h *Host, seen []v1alpha1.NodeStatus) NodeInfo {
	n := NodeInfo{
		Name: h.Spec.Name, Roles: h.Spec.Roles, Address: module.InternalAddress(h.Spec), Ready: "Unknown", Host: "ok",
		Kubelet: h.kubelet,
	}
	for _, st := range seen {
		if st.Name == n.Name {
			n.Version = st.Version
		}
	}
	if h.Err != nil {
		n.Host = hostconn.Diagnose(h.Err).Message
	}
	if h.triedEndpoint {
		n.Endpoint = "ok"
		if h.endpoint != nil {
			n.Endpoint = h.endpoint.Error()
		}
	}
	if f := h.facts; f != nil {
		n.OS, n.Kernel = f.OS.Name, f.Kernel
		n.Capacity = readHostResources(f)
		n.ResourcesFrom = "host"
		if n.Address == "localhost" {
			n.Address = facts.DefaultAddress(f)
		}
	}
	return n
}
