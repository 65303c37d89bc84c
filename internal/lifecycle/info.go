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

// AddOn is what runs in the cluster for the cluster.
type AddOn struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Version   string `json:"version"`
	// Ready and Wanted are pods; -1 is not known.
	Ready  int `json:"ready"`
	Wanted int `json:"wanted"`
	// Missing says that the cluster ought to have it, and has not.
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
	// apiTime bounds one question to the API.
	apiTime = 5 * time.Second
	// lastOperations is how many are shown.
	lastOperations = 5
)

// lookTimes bound how long a look at a cluster takes. Each host has its own
// time, and so have the API and etcd, which are asked through whoever is reached
// first: nobody waits for one that hangs.
type lookTimes struct {
	whole time.Duration // all of it
	host  time.Duration // one host
	over  time.Duration // the API or etcd, over one host
	// dump and dumpHost are those of a support bundle, which reads logs.
	dump, dumpHost time.Duration
	// file is how long nothing may come of a file that is fetched: it is read
	// through before.
	file time.Duration
	// between is how long pods are waited for that a minor of an upgrade has moved,
	// before the next one.
	between time.Duration
}

func usualLooks() lookTimes {
	return lookTimes{whole: 25 * time.Second, host: 12 * time.Second, over: 10 * time.Second, dump: 3 * time.Minute, dumpHost: 2 * time.Minute, file: op.AutoCopyTime, between: 5 * time.Minute}
}

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
	auto     *AutoRenewal
	// schedule is what it does about snapshots by itself, if it was asked.
	schedule *ScheduledHost
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

// lookAt asks all hosts of a cluster at once, each within a limit; one that does
// not answer has its error afterwards. Those through which the API or etcd can
// be asked are told of as soon as they are reached.
func (l *looker) lookAt(ctx context.Context, limit time.Duration, progress event.Sink, ask func(context.Context, *hostLook)) {
	c := l.env.Cluster
	defer func() {
		close(l.controlPlanes)
		close(l.members)
	}()
	first := func(h *hostLook) int { // where there are more than are dialled at once
		if spec.HasRole(h.spec, v1alpha1.RoleWorker) && !spec.HasRole(h.spec, v1alpha1.RoleControlPlane) {
			return 1
		}
		return 0
	}
	order := slices.SortedStableFunc(slices.Values(l.hosts), func(a, b *hostLook) int { return first(a) - first(b) })
	each(order, func(h *hostLook) {
		ctx, cancel := context.WithTimeoutCause(ctx, limit, silent(h.spec.Name, limit))
		defer cancel()
		note(progress, h.spec.Name, "connecting")
		conn, err := l.svc.Connect(ctx, merged(c, h.spec), l.svc.looking())
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

// errNoTime is why those were not asked whose turn did not come.
var errNoTime = errors.New("there was no time left to ask")

// silent is a host that does not answer in time, though it may be connected.
func silent(host string, limit time.Duration) error {
	return &remote.Error{
		Host: host, Reason: remote.Unreachable, Cause: fmt.Sprintf("it did not answer within %s", limit), Err: context.DeadlineExceeded,
		Remedy: "is the host overloaded, or its disk? look at it: slipway ssh " + host,
	}
}

// because is an error that a time-out brought about, as the time-out tells it.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && errors.Is(err, context.DeadlineExceeded) {
		return cause
	}
	return err
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
	// controlPlanes, and hosts through which etcd can be asked, come when they
	// are reached.
	controlPlanes, members chan *hostLook
}

// look begins to look at a cluster, for as long as a look may take. done ends it.
func (s *service) look(ctx context.Context, c *v1alpha1.Cluster) (_ context.Context, l *looker, done func(), err error) {
	env, err := s.environment(ctx, c)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.looks.whole, errNoTime)
	l = newLooker(s, env)
	if admin, _, err := s.current(ctx, env); err == nil {
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
			_ = h.conn.Close() // it was only asked
		}
	}
}

// client speaks to the API from a host, at an address as the host sees it.
func (l *looker) client(h *hostLook, address string) (*kube.Client, error) {
	return kube.New(l.admin, h.conn.DialContext, kube.Options{Address: address})
}
