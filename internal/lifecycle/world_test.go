// The fake servers are reached through a loopback device: ML-KEM would take a third of the
// time of their handshakes.
//
//go:debug tlsmlkem=0
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/store"
	"slipway.dev/slipway/internal/testutil/memdir"
)

// A world has machines, the API of a cluster, and saved state in a directory.
type world struct {
	t        testing.TB
	home     string
	cache    string
	machines map[string]*machine
	api      *api
	// With managed, all machines have etcd as a service, and machines named e* have only
	// etcd. With apart, the other machines have no etcd.
	managed, apart bool
	// doors are the addresses at which this machine reaches the API.
	doors []string
	// version is the Kubernetes version; "" is the default.
	version string
	// boot is the boot ID of this machine.
	boot string
	// runtime is the container runtime; "" is the default.
	runtime string
	// noAPI: an operation stops without an API server to clean up in, so a short wait for
	// one is enough.
	noAPI bool
	// endpoint is the control plane endpoint of the cluster, if it is set.
	endpoint *v1alpha1.ControlPlaneEndpoint

	mu     sync.Mutex
	clock  time.Time
	open   atomic.Int32 // connections
	events []event.Event
	dials  map[string]bool // machines that were connected to
}

// built is a cache with a bundle, built by the first test that needs it. older adds the
// bundle of the older version.
var built struct {
	sync.Once
	older sync.Once
	cache string
}

func TestMain(m *testing.M) {
	dir, err := memdir.Use()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built.cache = filepath.Join(dir, "cache")
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func cache(t testing.TB) string {
	built.Do(func() { build(t, "") })
	return built.cache
}

// older is a version that can be upgraded from.
const older = "v1.36.4"

// build puts the bundle of a version into the cache; "" is the default version.
func build(t testing.TB, version string) {
	t.Helper()
	var more []string
	if version != "" {
		more = []string{version}
	}
	_, err := bundle.Build(t.Context(), bundle.BuildOptions{
		Kubernetes: version, Arches: []string{"amd64"}, Source: bundle.Upstream, Cache: built.cache,
		Releases: bundletest.LoadCatalogue(t), Upstream: bundletest.NewSite(t, more...).Options(),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// newWorld returns a world with machines of these names, the first of which is cp1.
func newWorld(t testing.TB, names ...string) *world {
	w := &world{
		t: t, home: t.TempDir(), cache: cache(t), machines: map[string]*machine{}, api: newAPI(t),
		clock: time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC),
	}
	for i, n := range names {
		w.machines[n] = newMachine(n, fmt.Sprintf("192.0.2.%d", 11+i), w.api)
	}
	t.Cleanup(func() {
		if n := w.open.Load(); n != 0 {
			t.Errorf("%d connections are still open", n)
		}
	})
	return w
}

// fork returns a copy of the world, as a kill of the process leaves it now.
func (w *world) fork(t testing.TB) *world {
	t.Helper()
	// All machines are locked at one moment: a change is on both the machine and the API
	// or on neither. All saved steps are done.
	for _, name := range slices.Sorted(maps.Keys(w.machines)) {
		m := w.machines[name]
		m.mu.Lock()
		defer m.mu.Unlock()
	}
	w.mu.Lock()
	clock := w.clock
	w.mu.Unlock()
	f := &world{
		t: t, cache: w.cache, machines: map[string]*machine{}, api: w.api.clone(), managed: w.managed,
		version: w.version, runtime: w.runtime, endpoint: w.endpoint, clock: clock.Add(time.Minute),
	}
	for n, m := range w.machines {
		f.machines[n] = m.clone(f.api)
	}
	f.api.kubeletShows = w.api.kubeletShows
	if w.api.shows != nil {
		f.api.shows, f.api.kubeletShows = f.shown, f.shownBy
	}
	for {
		f.home = t.TempDir()
		err := os.CopyFS(f.home, os.DirFS(w.home))
		if err == nil {
			f.takeLocks(w.manager())
			return f
		}
		if !errors.Is(err, fs.ErrNotExist) { // otherwise a file was just renamed
			t.Fatal(err)
		}
	}
}

// manager returns the ID of this manager on the machines.
func (w *world) manager() string {
	w.t.Helper()
	id, err := w.service().Store.ManagerID()
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// takeLocks makes this manager the holder of the locks of another manager. A copy of the
// saved state belongs to another manager.
func (w *world) takeLocks(from string) {
	w.t.Helper()
	is := w.manager()
	for _, m := range w.machines {
		if m.lock.Holder.Manager == from {
			m.lock.Holder.Manager = is
		}
	}
}

// service returns a new process with the same saved state.
func (w *world) service() *Service {
	st, err := store.Open(w.home)
	if err != nil {
		w.t.Fatal(err)
	}
	s := New(Config{
		Store: st, Catalogue: bundletest.LoadCatalogue(w.t), Cache: w.cache, Home: w.home,
		Connect: w.connect, Dial: w.dial, Now: w.now, BootID: w.boot,
	})
	if w.noAPI {
		s.waits.cleanup = time.Second
	}
	return s
}

// dial reaches the API from this machine.
func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != "6443" || !slices.Contains(w.doors, host) {
		return nil, fmt.Errorf("dialling %s: %w", address, errDown)
	}
	return (&net.Dialer{}).DialContext(ctx, network, w.api.address())
}

// now returns a time that advances by one second with each call.
func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock = w.clock.Add(time.Second)
	return w.clock
}

func (w *world) connect(ctx context.Context, h v1alpha1.Host, _ remote.Options) (remote.Host, error) {
	m := w.machines[h.Name]
	if m == nil {
		w.t.Errorf("there is no machine %s", h.Name)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var told *remote.Error
	if errors.As(m.down, &told) {
		return nil, told
	}
	if m.down != nil {
		return nil, &remote.Error{Host: h.Name, Reason: remote.Unreachable, Cause: h.Name + " does not answer", Remedy: "start it", Err: m.down}
	}
	w.mu.Lock()
	if w.dials != nil {
		w.dials[h.Name] = true
	}
	w.mu.Unlock()
	w.open.Add(1)
	return &conn{machine: m, closed: sync.OnceFunc(func() { w.open.Add(-1) })}, nil
}

// cluster returns a cluster on all machines.
func (w *world) cluster() *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Cluster"}}
	c.Name = "prod"
	if w.endpoint != nil {
		c.Spec.ControlPlaneEndpoint = *w.endpoint
	}
	c.Spec.ControlPlaneEndpoint.Domain = "example.com"
	c.Spec.Kubernetes.Version, c.Spec.ContainerRuntime.Type = w.version, w.runtime
	var names []string
	for n := range w.machines {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		roles := []v1alpha1.Role{v1alpha1.RoleWorker}
		if strings.HasPrefix(n, "cp") {
			roles[0] = v1alpha1.RoleControlPlane
		}
		if w.managed {
			c.Spec.Etcd.Type = spec.EtcdManaged
			if !w.apart || strings.HasPrefix(n, "e") {
				roles = append(roles, v1alpha1.RoleEtcd)
			}
		}
		if strings.HasPrefix(n, "e") {
			roles = roles[1:]
		}
		c.Spec.Hosts = append(c.Spec.Hosts, v1alpha1.Host{Name: n, Address: w.machines[n].address, Roles: roles})
	}
	return c
}

// prepared fails the test on an error, and closes p when the test ends.
func (w *world) prepared(p Prepared, err error) Prepared {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = p.Close() })
	return p
}

// creating asks to create a cluster.
func creating(c *v1alpha1.Cluster) CreateRequest { return CreateRequest{Subject: Subject{Cluster: c}} }

// applying asks to apply the description of a cluster.
func applying(c *v1alpha1.Cluster) ApplyRequest { return ApplyRequest{Subject: Subject{Cluster: c}} }

// despiteErrors returns the request for an operation in which other hosts finish when one
// fails.
func despiteErrors(r Request) Request {
	switch r := r.(type) {
	case ApplyRequest:
		r.IgnoreErrors = true
		return r
	case AddNodesRequest:
		r.IgnoreErrors = true
		return r
	case DeleteNodesRequest:
		r.IgnoreErrors = true
		return r
	case DeleteRequest:
		r.IgnoreErrors = true
		return r
	}
	panic(fmt.Sprintf("no test has a %T with errors", r))
}

// resuming asks to resume the operation of cluster prod.
func resuming() ResumeRequest { return ResumeRequest{Subject: Subject{Name: "prod"}} }

// rollingBack asks to roll back the operation of cluster prod.
func rollingBack() RollbackRequest { return RollbackRequest{Name: "prod"} }

// do plans and applies a request and checks the outcome.
func (w *world) do(r Request, want event.Outcome) *Result {
	w.t.Helper()
	return w.apply(w.prepared(w.service().Prepare(w.t.Context(), r, nil)), want)
}

func (w *world) create(want event.Outcome) *Result {
	w.t.Helper()
	return w.do(creating(w.cluster()), want)
}

func (w *world) apply(p Prepared, want event.Outcome) *Result {
	w.t.Helper()
	res, err := p.Apply(w.t.Context(), event.SinkFunc(func(e event.Event) { w.events = append(w.events, e) }))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		w.t.Fatal(err)
	}
	if res.Outcome != want {
		w.t.Fatalf("outcome %s, want %s: %+v", res.Outcome, want, res.Failures)
	}
	return res
}

func (w *world) resume(want event.Outcome) *Result {
	w.t.Helper()
	return w.apply(w.prepared(w.service().PrepareResume(w.t.Context(), resuming(), nil)), want)
}

func (w *world) rollback(want event.Outcome) (*plan.Plan, *Result) {
	w.t.Helper()
	p := w.prepared(w.service().PrepareRollback(w.t.Context(), rollingBack(), nil))
	return p.Plan(), w.apply(p, want)
}

// status returns the phase of the saved cluster, and the types and phases of operations,
// newest first.
func (w *world) status() (v1alpha1.Phase, []string) {
	w.t.Helper()
	s := w.service()
	var phase v1alpha1.Phase
	if c, err := s.Cluster(w.t.Context(), "prod"); err == nil {
		phase = c.Status.Phase
	}
	ops, err := s.Operations(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, o := range ops {
		out = append(out, o.Spec.Type+" "+string(o.Status.Phase))
	}
	return phase, out
}

func (w *world) wantPhase(want v1alpha1.Phase) {
	w.t.Helper()
	if got, _ := w.status(); got != want {
		w.t.Errorf("the cluster's phase is %q, want %q", got, want)
	}
}

func (w *world) wantStatus(phase v1alpha1.Phase, ops ...string) {
	w.t.Helper()
	w.wantPhase(phase)
	_, have := w.status()
	if d := cmp.Diff(ops, have); d != "" {
		w.t.Errorf("operations, newest first (-want +got):\n%s", d)
	}
}

// whole checks that the cluster runs, that nothing is left to do, and that no join token
// is left.
func (w *world) whole() {
	w.t.Helper()
	p := w.prepared(w.service().Prepare(w.t.Context(), applying(w.cluster()), nil))
	if !p.Plan().IsEmpty() {
		w.t.Errorf("there is something left to do: %+v", p.Plan().Steps)
	}
	if err := p.Close(); err != nil {
		w.t.Error(err)
	}
	if tokens := w.api.tokens(); len(tokens) > 0 {
		w.t.Errorf("%d join tokens are left", len(tokens))
	}
	for name, m := range w.machines {
		if node := !strings.HasPrefix(name, "e"); w.api.has("/api/v1/nodes/"+name) != node {
			w.t.Errorf("%s is a node: %t, want %t", name, !node, node)
		}
		if m.lock.Held {
			w.t.Errorf("%s still holds the lock", name)
		}
	}
}

// bare checks that machines are as before the first operation.
func (w *world) bare() {
	w.t.Helper()
	for name, m := range w.machines {
		if len(m.look()) > 0 || m.ledger {
			w.t.Errorf("%s still has %v", name, m.look())
		}
	}
}
