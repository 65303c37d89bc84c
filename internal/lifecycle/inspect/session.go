package inspect

import (
	"context"
	"errors"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// Limits limit the duration of a cluster query. Each host has a separate limit, and so have
// the API and etcd, which are queried through the first reachable host: a host that hangs
// does not delay the others.
type Limits struct {
	// Total is the limit of the query, Host the limit of one host, Through the limit of the
	// API or etcd through one host.
	Total, Host, Through time.Duration
}

// A Host is the result of querying one host.
type Host struct {
	Spec v1alpha1.Host
	// Conn is nil, and Err is the reason, if the host cannot be reached.
	Conn  remote.Host
	Err   error
	facts *op.HostFacts
	// kubelet is the state of its unit. endpoint is the reason if the API does not
	// respond to this host.
	kubelet       string
	triedEndpoint bool
	endpoint      error
	certificates  []Certificate
	autoRenewal   *AutoRenewal
	// schedule describes its automatic snapshots, if they were queried.
	schedule *ScheduledHost
}

// A Session queries a cluster once. It connects to the hosts of a cluster.
type Session struct {
	in  *Inspector
	Env module.Env
	// Admin is the admin kubeconfig, empty if there is none yet.
	Admin []byte
	Hosts []*Host
	// ControlPlanes and members receive hosts when they are reached: control planes,
	// and hosts from which etcd can be queried.
	ControlPlanes, members chan *Host
}

// StartSession begins to query a cluster within the time limit. done ends the query.
func (in *Inspector) StartSession(ctx context.Context, c *v1alpha1.Cluster) (_ context.Context, s *Session, done func(), err error) {
	env, err := in.c.Clusters.Environment(ctx, c)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, in.Limits.Total, ErrNoTime)
	s = in.NewSession(ctx, env)
	if admin, _, err := in.c.Access.CurrentKubeconfig(ctx, env); err == nil {
		s.Admin = admin
	}
	return ctx, s, func() { s.Close(); cancel() }, nil
}

// NewSession returns a session for queries of a cluster that the caller limits.
func (in *Inspector) NewSession(ctx context.Context, env module.Env) *Session {
	all := env.Cluster.Spec.Hosts
	s := &Session{in: in, Env: env, ControlPlanes: make(chan *Host, len(all)), members: make(chan *Host, len(all))}
	s.Admin, _ = in.c.Records.Kubeconfigs().Load(ctx, env.Cluster.Name) // a new cluster has no kubeconfig yet
	for _, h := range all {
		s.Hosts = append(s.Hosts, &Host{Spec: h})
	}
	return s
}

// Close closes the connections.
func (s *Session) Close() {
	for _, h := range s.Hosts {
		if h.Conn != nil {
			_ = h.Conn.Close() // only queries used it
		}
	}
}

// newAPIClient returns an API client that connects from a host to an address.
func (s *Session) newAPIClient(h *Host, address string) (*kube.Client, error) {
	return kube.New(s.Admin, h.Conn.DialContext, kube.Options{Address: address})
}

// QueryHosts queries all hosts of a cluster at the same time, each within a limit. A host
// that does not respond has an error afterwards. Hosts through which the API or etcd can
// be queried are sent to the channels as soon as they are reached.
func (s *Session) QueryHosts(ctx context.Context, limit time.Duration, progress event.Sink, query func(context.Context, *Host)) {
	c := s.Env.Cluster
	defer func() {
		close(s.ControlPlanes)
		close(s.members)
	}()
	first := func(h *Host) int { // matters if there are more hosts than hostconn.MaxParallel
		if spec.HasRole(h.Spec, v1alpha1.RoleWorker) && !spec.HasRole(h.Spec, v1alpha1.RoleControlPlane) {
			return 1
		}
		return 0
	}
	order := slices.SortedStableFunc(slices.Values(s.Hosts), func(a, b *Host) int { return first(a) - first(b) })
	hostconn.ForEach(order, func(h *Host) {
		ctx, cancel := context.WithTimeoutCause(ctx, limit, hostconn.Unresponsive(h.Spec.Name, limit))
		defer cancel()
		event.SendNote(progress, h.Spec.Name, "connecting")
		conn, err := s.in.c.Dialer.Dial(ctx, c, h.Spec)
		if err != nil {
			h.Err = hostconn.TimeoutCause(ctx, err)
			return
		}
		h.Conn = conn
		if spec.HasRole(h.Spec, v1alpha1.RoleControlPlane) {
			s.ControlPlanes <- h
		}
		if s.CanQueryEtcd(h.Spec) {
			s.members <- h
		}
		query(ctx, h)
		h.Err = hostconn.TimeoutCause(ctx, h.Err)
	})
}

// ErrNoTime is the error for hosts that were not queried before the time limit.
var ErrNoTime = errors.New("the time limit was reached before the query")
