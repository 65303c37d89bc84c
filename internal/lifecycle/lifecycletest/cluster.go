// Package lifecycletest is for tests of cluster operations. It simulates the hosts of a
// cluster, kubeadm, etcd and the API server in memory, through the interfaces of package
// remote and over HTTP. It links into no program.
//
// A test sets the exported fields of a [Host] or an [API] to make a part fail or answer
// differently.
package lifecycletest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// A Cluster is the hosts of a cluster, its API server, and the clock of the manager.
type Cluster struct {
	T     testing.TB
	Hosts map[string]*Host
	API   *API
	// With ManagedEtcd, all hosts have etcd as a service, and hosts named e* have only
	// etcd. With SeparateEtcd, the other hosts have no etcd.
	ManagedEtcd, SeparateEtcd bool
	// APIAddresses are the addresses at which the manager reaches the API.
	APIAddresses []string
	// Version is the Kubernetes version; "" is the default.
	Version string
	// Runtime is the container runtime; "" is the default.
	Runtime string
	// Endpoint is the control plane endpoint of the cluster, if it is set.
	Endpoint *v1alpha1.ControlPlaneEndpoint
	// Dials, if not nil, records the hosts that were connected to.
	Dials map[string]bool

	open  atomic.Int32 // connections
	mu    sync.Mutex
	clock time.Time
}

// ErrDown is the error of a host that does not answer.
var ErrDown = errors.New("no route to host")

// NewCluster returns a cluster with hosts of these names, the first of which is cp1. When
// the test ends, no connection may be open.
func NewCluster(t testing.TB, names ...string) *Cluster {
	return NewClusterIn(t, usualSubnet, names...)
}

// usualSubnet has the addresses of ServerCert.
const usualSubnet = "192.0.2"

// NewClusterIn is NewCluster in a network of 256 addresses, of which subnet is the beginning.
func NewClusterIn(t testing.TB, subnet string, names ...string) *Cluster {
	c := &Cluster{T: t, Hosts: map[string]*Host{}, API: NewAPI(t), clock: time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)}
	for i, n := range names {
		c.Hosts[n] = NewHost(n, fmt.Sprintf("%s.%d", subnet, 11+i), c.API)
	}
	if subnet != usualSubnet {
		c.API.KubeletCert = func(address string) *tls.Certificate { return new(newKubeletCert(address)) }
	}
	t.Cleanup(func() {
		if n := c.open.Load(); n != 0 {
			t.Errorf("%d connections are still open", n)
		}
	})
	return c
}

// LockHosts locks all hosts at one moment: a change is on both the host and the API, or on
// neither. The result unlocks them.
func (c *Cluster) LockHosts() (unlock func()) {
	var locked []*Host
	for _, name := range slices.Sorted(maps.Keys(c.Hosts)) {
		c.Hosts[name].Mu.Lock()
		locked = append(locked, c.Hosts[name])
	}
	return func() {
		for _, h := range locked {
			h.Mu.Unlock()
		}
	}
}

// Clone returns a copy of the cluster a minute later. The caller has locked the hosts.
func (c *Cluster) Clone(t testing.TB) *Cluster {
	c.mu.Lock()
	clock := c.clock
	c.mu.Unlock()
	f := &Cluster{
		T: t, Hosts: map[string]*Host{}, API: c.API.Clone(), ManagedEtcd: c.ManagedEtcd,
		Version: c.Version, Runtime: c.Runtime, Endpoint: c.Endpoint, clock: clock.Add(time.Minute),
	}
	for n, h := range c.Hosts {
		f.Hosts[n] = h.Clone(f.API)
	}
	f.API.KubeletCert = c.API.KubeletCert
	if c.API.ServingCert != nil {
		f.API.ServingCert, f.API.KubeletCert = f.ServingCert, f.ServingCertFor
	}
	return f
}

// Dial reaches the API from the manager.
func (c *Cluster) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != "6443" || !slices.Contains(c.APIAddresses, host) {
		return nil, fmt.Errorf("dialling %s: %w", address, ErrDown)
	}
	return (&net.Dialer{}).DialContext(ctx, network, c.API.ListenAddress())
}

// Now returns a time that advances by one second with each call.
func (c *Cluster) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock = c.clock.Add(time.Second)
	return c.clock
}

// Connect connects to a host.
func (c *Cluster) Connect(ctx context.Context, h v1alpha1.Host, _ remote.Options) (remote.Host, error) {
	m := c.Hosts[h.Name]
	if m == nil {
		c.T.Errorf("there is no host %s", h.Name)
		return nil, ErrDown
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var told *remote.Error
	if errors.As(m.Down, &told) {
		return nil, told
	}
	if m.Down != nil {
		return nil, &remote.Error{Host: h.Name, Reason: remote.Unreachable, Cause: h.Name + " does not answer", Remedy: "start it", Err: m.Down}
	}
	c.mu.Lock()
	if c.Dials != nil {
		c.Dials[h.Name] = true
	}
	c.mu.Unlock()
	c.open.Add(1)
	return &Conn{Host: m, OnClose: sync.OnceFunc(func() { c.open.Add(-1) })}, nil
}

// Manifest returns the Cluster object prod with all hosts. Hosts named cp* are control
// planes.
func (c *Cluster) Manifest() *v1alpha1.Cluster {
	out := &v1alpha1.Cluster{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Cluster"}}
	out.Name = "prod"
	if c.Endpoint != nil {
		out.Spec.ControlPlaneEndpoint = *c.Endpoint
	}
	out.Spec.ControlPlaneEndpoint.Domain = "example.com"
	out.Spec.Kubernetes.Version, out.Spec.ContainerRuntime.Type = c.Version, c.Runtime
	for _, n := range slices.Sorted(maps.Keys(c.Hosts)) {
		roles := []v1alpha1.Role{v1alpha1.RoleWorker}
		if strings.HasPrefix(n, "cp") {
			roles[0] = v1alpha1.RoleControlPlane
		}
		if c.ManagedEtcd {
			out.Spec.Etcd.Type = spec.EtcdManaged
			if !c.SeparateEtcd || strings.HasPrefix(n, "e") {
				roles = append(roles, v1alpha1.RoleEtcd)
			}
		}
		if strings.HasPrefix(n, "e") {
			roles = roles[1:]
		}
		out.Spec.Hosts = append(out.Spec.Hosts, v1alpha1.Host{Name: n, Address: c.Hosts[n].Address, Roles: roles})
	}
	return out
}
