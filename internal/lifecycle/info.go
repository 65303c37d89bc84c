package lifecycle

import (
	"context"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// A Verdict is a cluster's state in one word.
type Verdict string

// The verdicts.
const (
	Healthy  Verdict = "healthy"
	Degraded Verdict = "degraded" // it works, and something is wrong
	Down     Verdict = "down"     // its API does not answer
	Absent   Verdict = "absent"   // it has no control plane yet
)

// Info is what is known of a cluster at this moment: from its API, and from
// its hosts and the records where that does not answer.
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
	// Certificates come soonest first.
	Certificates []Certificate `json:"certificates"`
	AddOns       []AddOn       `json:"addOns"`
	// Operations are the latest few, newest first.
	Operations []OperationInfo `json:"operations"`
	// Next is what to type now.
	Next string `json:"next"`
}

// EndpointInfo is how the API is reached, and whether it answers.
type EndpointInfo struct {
	Address string                `json:"address"`
	Mode    v1alpha1.EndpointMode `json:"mode"`
	Answers bool                  `json:"answers"`
	// Through is the host over which it answers; "" is from here.
	Through string `json:"through,omitempty"`
	Message string `json:"message,omitempty"`
}

// NodeInfo is a host, and the node that it is.
type NodeInfo struct {
	Name    string          `json:"name"`
	Roles   []v1alpha1.Role `json:"roles"`
	Address string          `json:"address"`
	// Version is the kubelet's; of the records, if the API does not answer.
	Version string `json:"version"`
	// Ready is Ready, NotReady or Unknown.
	Ready       string    `json:"ready"`
	Cordoned    bool      `json:"cordoned,omitempty"`
	Message     string    `json:"message,omitempty"`
	Capacity    Resources `json:"capacity"`
	Allocatable Resources `json:"allocatable"`
	// ResourcesFrom says who told of them: api, host or nobody ("").
	ResourcesFrom string `json:"resourcesFrom"`
	OS            string `json:"os"`
	Kernel        string `json:"kernel"`
	Runtime       string `json:"runtime"`
	// Host is whether SSH reaches it: ok, or why not.
	Host string `json:"host"`
	// Endpoint is what the API answers when this node asks it: ok, or why
	// not; "" if the host could not be asked.
	Endpoint string `json:"endpoint"`
	// Kubelet is the unit's state; "" if the host could not be asked.
	Kubelet string `json:"kubelet"`
}

// Resources are a node's; empty is not known.
type Resources struct {
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
	Pods   string `json:"pods,omitempty"`
	Disk   string `json:"disk,omitempty"`
}

// EtcdInfo is the cluster's etcd.
type EtcdInfo struct {
	Type    string       `json:"type"` // stacked, managed, external
	Members []EtcdMember `json:"members"`
	// Through is the host that was asked; Message is why there is no answer.
	Through string `json:"through,omitempty"`
	Message string `json:"message,omitempty"`
}

// EtcdMember is one member.
type EtcdMember struct {
	Name     string `json:"name"`
	ID       string `json:"id"` // hexadecimal, as etcdctl takes it
	Endpoint string `json:"endpoint"`
	Leader   bool   `json:"leader"`
	Learner  bool   `json:"learner"`
	Healthy  bool   `json:"healthy"`
	Version  string `json:"version,omitempty"`
	// DBBytes is the size of its database.
	DBBytes int64 `json:"dbBytes,omitempty"`
}

// Certificate is a certificate on a host.
type Certificate struct {
	Host    string    `json:"host"`
	Path    string    `json:"path"`
	Subject string    `json:"subject"`
	CA      bool      `json:"ca,omitempty"`
	Expires time.Time `json:"expires"`
}

// AddOn is what runs in the cluster for the cluster.
type AddOn struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Version   string `json:"version"`
	// Ready and Wanted are pods; -1 is not known.
	Ready  int `json:"ready"`
	Wanted int `json:"wanted"`
}

// OperationInfo is an operation in one line.
type OperationInfo struct {
	ID      string                  `json:"id"`
	Type    string                  `json:"type"`
	Phase   v1alpha1.OperationPhase `json:"phase"`
	Created time.Time               `json:"created"`
	Message string                  `json:"message,omitempty"`
}

const (
	// infoTime bounds the whole look; hosts that do not answer are asked at
	// the same time as the others.
	infoTime = 25 * time.Second
	// apiTime bounds one question to the API.
	apiTime = 5 * time.Second
	// lastOperations is how many are shown.
	lastOperations = 5
)

// A hostLook is what one host answered.
type hostLook struct {
	spec  v1alpha1.Host
	conn  remote.Host
	err   error // it cannot be reached
	facts *op.HostFacts
	// kubelet is its unit's state; endpoint why the API does not answer here.
	kubelet  string
	asked    bool
	endpoint error
	certs    []Certificate
}

// Info looks at a cluster. It answers with what can be known within a bounded
// time, whoever is down. progress, which may be nil, hears of connecting.
func (s *service) Info(ctx context.Context, name string, progress event.Sink) (*Info, error) {
	c, err := s.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	ops, err := s.Operations(ctx, name)
	if err != nil {
		return nil, err
	}
	env, err := s.environment(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, infoTime)
	defer cancel()
	l := &looker{svc: s, env: env}
	l.admin, _ = s.Store.Kubeconfig(name) // there may be none yet
	l.hosts = s.lookAt(ctx, c, progress, l.host)
	defer l.close()
	in := &Info{
		Name: name, Phase: c.Status.Phase, Kubernetes: c.Spec.Kubernetes.Version, Warnings: diag.List{},
		Endpoint: EndpointInfo{Address: env.Endpoint(), Mode: c.Spec.ControlPlaneEndpoint.Mode},
		Nodes:    []NodeInfo{}, Certificates: []Certificate{}, AddOns: []AddOn{}, Operations: []OperationInfo{},
		Etcd: EtcdInfo{Type: c.Spec.Etcd.Type, Members: []EtcdMember{}},
	}
	for _, h := range l.hosts {
		if facts.RunsKubelet(h.spec.Roles) {
			in.Nodes = append(in.Nodes, nodeFromHost(c, h))
		}
		in.Certificates = append(in.Certificates, h.certs...)
	}
	slices.SortStableFunc(in.Certificates, func(a, b Certificate) int { return a.Expires.Compare(b.Expires) })
	l.askAPI(ctx, in)
	l.askEtcd(ctx, in)
	for _, o := range ops[:min(len(ops), lastOperations)] {
		in.Operations = append(in.Operations, OperationInfo{o.Name, o.Spec.Type, o.Status.Phase, o.CreationTimestamp.Time, o.Status.Message})
	}
	l.judge(in, c, ops)
	return in, nil
}

// lookAt asks all hosts of a cluster at once; one that does not answer is in
// the answer with its error.
func (s *service) lookAt(ctx context.Context, c *v1alpha1.Cluster, progress event.Sink, ask func(context.Context, *hostLook)) []*hostLook {
	targets := make([]*hostLook, len(c.Spec.Hosts))
	for i, h := range c.Spec.Hosts {
		targets[i] = &hostLook{spec: h}
	}
	each(targets, func(h *hostLook) {
		note(progress, h.spec.Name, "connecting")
		if h.conn, h.err = s.Connect(ctx, merged(c, h.spec), s.looking()); h.err == nil {
			ask(ctx, h)
		}
	})
	return targets
}

// nodeFromHost is a node as its host and the records tell of it.
func nodeFromHost(c *v1alpha1.Cluster, h *hostLook) NodeInfo {
	n := NodeInfo{
		Name: h.spec.Name, Roles: h.spec.Roles, Address: module.InternalAddress(h.spec), Ready: "Unknown", Host: "ok",
		Kubelet: h.kubelet,
	}
	for _, st := range c.Status.Nodes {
		if st.Name == n.Name {
			n.Version = st.Version
		}
	}
	if h.err != nil {
		n.Host = why(h.err).Message
	}
	if h.asked {
		n.Endpoint = "ok"
		if h.endpoint != nil {
			n.Endpoint = h.endpoint.Error()
		}
	}
	if f := h.facts; f != nil {
		n.OS, n.Kernel = f.OS.Name, f.Kernel
		n.Capacity = hostResources(f)
		n.ResourcesFrom = "host"
		if n.Address == "localhost" {
			n.Address = facts.DefaultAddress(f)
		}
	}
	return n
}

// looker is one look at a cluster.
type looker struct {
	svc   *service
	env   module.Env
	admin []byte
	hosts []*hostLook
}

func (l *looker) close() {
	for _, h := range l.hosts {
		if h.conn != nil {
			_ = h.conn.Close() // it was only asked
		}
	}
}

// client speaks to the API from a host, at an address as the host sees it.
func (l *looker) client(h *hostLook, address string) (*kube.Client, error) {
	return kube.New(l.admin, h.conn.DialContext, kube.Options{Address: address})
}
