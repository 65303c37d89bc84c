package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
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
	Phase   v1alpha1.OperationPhase `json:"phase"`
	Created time.Time               `json:"created"`
	Message string                  `json:"message,omitempty"`
}

const (
	// apiTime limits one API request.
	apiTime = 5 * time.Second
	// lastOperations is the number of operations to show.
	lastOperations = 5
)

// lookTimes limit the duration of a cluster query. Each host has a separate limit, and so
// have the API and etcd, which are queried through the first reachable host: a host that
// hangs does not delay the others.
type lookTimes struct {
	whole time.Duration // all of it
	host  time.Duration // one host
	over  time.Duration // the API or etcd, over one host
	// dump and dumpHost are the limits for a support bundle, which reads logs.
	dump, dumpHost time.Duration
	// file is how long a fetched file may deliver no data: the host reads the whole
	// file first.
	file time.Duration
	// between is how long to wait, between two minors of an upgrade, for pods that were
	// moved.
	between time.Duration
}

func usualLooks() lookTimes {
	return lookTimes{whole: 25 * time.Second, host: 12 * time.Second, over: 10 * time.Second, dump: 3 * time.Minute,
		dumpHost: 2 * time.Minute, file: op.AutoCopyTime, between: 5 * time.Minute}
}

// A hostLook is the result of querying one host.
type hostLook struct {
	spec  v1alpha1.Host
	conn  remote.Host
	err   error // the reason if it cannot be reached
	facts *op.HostFacts
	// kubelet is the state of its unit. endpoint is the reason if the API does not
	// respond to this host.
	kubelet  string
	asked    bool
	endpoint error
	certs    []Certificate
	auto     *AutoRenewal
	// schedule describes its automatic snapshots, if they were queried.
	schedule *ScheduledHost
}

// Info returns the state of a cluster within a bounded time, even if hosts are down.
// progress, which may be nil, receives events about connecting.
func (s *service) Info(ctx context.Context, name string, progress event.Sink) (*Info, error) {
	c, err := s.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	ops, err := s.Operations(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx, l, done, err := s.look(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	in := &Info{
		Name: name, Phase: c.Status.Phase, Kubernetes: c.Spec.Kubernetes.Version, Warnings: diag.List{},
		Endpoint: EndpointInfo{Address: l.env.Endpoint(), Mode: c.Spec.ControlPlaneEndpoint.Mode},
		Nodes:    []NodeInfo{}, Certificates: []Certificate{}, AddOns: []AddOn{}, Operations: []OperationInfo{},
		Etcd: EtcdInfo{Type: c.Spec.Etcd.Type, Members: []EtcdMember{}},
	}
	var asked sync.WaitGroup
	var api *apiAnswer
	asked.Go(func() { api = l.askAPI(ctx) })
	asked.Go(func() { l.askEtcd(ctx, &in.Etcd) })
	l.lookAt(ctx, s.looks.host, progress, l.host)
	asked.Wait()
	for _, h := range l.hosts {
		if facts.RunsKubelet(h.spec.Roles) {
			in.Nodes = append(in.Nodes, nodeFromHost(c, h))
		}
		in.Certificates = append(in.Certificates, h.certs...)
	}
	sortCertificates(in.Certificates)
	in.AddOns = l.installed()
	api.into(in)
	for _, o := range ops[:min(len(ops), lastOperations)] {
		in.Operations = append(in.Operations, OperationInfo{o.Name, o.Spec.Type, o.Status.Phase, o.CreationTimestamp.Time, o.Status.Message})
	}
	l.judge(in, c, ops)
	return in, nil
}

// lookAt queries all hosts of a cluster at the same time, each within a limit. A host
// that does not respond has an error afterwards. Hosts through which the API or etcd can
// be queried are sent to the channels as soon as they are reached.
func (l *looker) lookAt(ctx context.Context, limit time.Duration, progress event.Sink, ask func(context.Context, *hostLook)) {
	c := l.env.Cluster
	defer func() {
		close(l.controlPlanes)
		close(l.members)
	}()
	first := func(h *hostLook) int { // matters if there are more hosts than hostconn.MaxParallel
		if spec.HasRole(h.spec, v1alpha1.RoleWorker) && !spec.HasRole(h.spec, v1alpha1.RoleControlPlane) {
			return 1
		}
		return 0
	}
	order := slices.SortedStableFunc(slices.Values(l.hosts), func(a, b *hostLook) int { return first(a) - first(b) })
	hostconn.ForEach(order, func(h *hostLook) {
		ctx, cancel := context.WithTimeoutCause(ctx, limit, silent(h.spec.Name, limit))
		defer cancel()
		note(progress, h.spec.Name, "connecting")
		conn, err := l.svc.Connect(ctx, hostconn.WithSSH(c, h.spec), l.svc.dialer().QueryOptions())
		if err != nil {
			h.err = because(ctx, err)
			return
		}
		h.conn = conn
		if spec.HasRole(h.spec, v1alpha1.RoleControlPlane) {
			l.controlPlanes <- h
		}
		if l.asksEtcd(h.spec) {
			l.members <- h
		}
		ask(ctx, h)
		h.err = because(ctx, h.err)
	})
}

// errNoTime is the error for hosts that were not queried before the time limit.
var errNoTime = errors.New("the time limit was reached before the query")

// silent is the error for a host that does not respond in time, although it may be
// connected.
func silent(host string, limit time.Duration) error {
	return &remote.Error{
		Host: host, Reason: remote.Unreachable, Cause: fmt.Sprintf("the host did not respond within %s", limit), Err: context.DeadlineExceeded,
		Remedy: "check whether the host or its disk is overloaded: slipway ssh " + host,
	}
}

// because returns the cause of a time-out instead of the resulting error.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && errors.Is(err, context.DeadlineExceeded) {
		return cause
	}
	return err
}

// nodeFromHost describes a node from its host and the saved state.
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
		n.Host = hostconn.Diagnose(h.err).Message
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

// looker queries a cluster once.
type looker struct {
	svc   *service
	env   module.Env
	admin []byte
	hosts []*hostLook
	// controlPlanes and members receive hosts when they are reached: control planes,
	// and hosts from which etcd can be queried.
	controlPlanes, members chan *hostLook
}

// look begins to query a cluster within the time limit. done ends the query.
func (s *service) look(ctx context.Context, c *v1alpha1.Cluster) (_ context.Context, l *looker, done func(), err error) {
	env, err := s.environment(ctx, c)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.looks.whole, errNoTime)
	l = newLooker(s, env)
	if admin, _, err := s.CurrentKubeconfig(ctx, env); err == nil {
		l.admin = admin
	}
	return ctx, l, func() { l.close(); cancel() }, nil
}

func newLooker(s *service, env module.Env) *looker {
	all := env.Cluster.Spec.Hosts
	l := &looker{svc: s, env: env, controlPlanes: make(chan *hostLook, len(all)), members: make(chan *hostLook, len(all))}
	l.admin, _ = s.Store.Kubeconfig(env.Cluster.Name) // there may be none yet
	for _, h := range all {
		l.hosts = append(l.hosts, &hostLook{spec: h})
	}
	return l
}

func (l *looker) close() {
	for _, h := range l.hosts {
		if h.conn != nil {
			_ = h.conn.Close() // only queries used it
		}
	}
}

// client returns an API client that connects from a host to an address.
func (l *looker) client(h *hostLook, address string) (*kube.Client, error) {
	return kube.New(l.admin, h.conn.DialContext, kube.Options{Address: address})
}
