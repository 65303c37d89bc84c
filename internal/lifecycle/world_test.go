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
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/store"
	"slipway.dev/slipway/internal/testutil/memdir"
	"slipway.dev/slipway/internal/testutil/racesample"
)

// The names by which the tests here use parts of a simulated cluster.
const (
	certDay        = lifecycletest.Day
	certYear       = lifecycletest.Year
	caCert         = lifecycletest.CACert
	proxyCA        = lifecycletest.FrontProxyCA
	virtualAddress = lifecycletest.VirtualAddress
)

var (
	certTime = lifecycletest.CertTime
	errDown  = lifecycletest.ErrDown
)

type object = map[string]any

// A world is a simulated cluster, and a manager with saved state in a directory.
type world struct {
	*lifecycletest.Cluster
	t     testing.TB
	home  string
	cache string
	// open opens the saved state as a new process does; nil opens files in home.
	open func() records.Backend
	// boot is the boot ID of the manager's machine.
	boot string

	mu     sync.Mutex
	events []event.Event
}

// built is a cache with a bundle, built by the first test that needs it. older adds the
// bundle of the older version.
var built struct {
	sync.Once
	older sync.Once
	cache string
}

func TestMain(m *testing.M) {
	runManager(context.Background())
	dir, err := memdir.Use()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built.cache = filepath.Join(dir, "cache")
	code := runTests(m)
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

// newWorld returns a world with hosts of these names, the first of which is cp1.
func newWorld(t testing.TB, names ...string) *world {
	t.Helper()
	racesample.SkipUnlessIn(t, 3)
	return &world{Cluster: lifecycletest.NewCluster(t, names...), t: t, home: t.TempDir(), cache: cache(t)}
}

// fork returns a copy of the world, as a kill of the process leaves it now. All saved
// steps are done.
func (w *world) fork(t testing.TB) *world {
	t.Helper()
	if w.open != nil {
		t.Fatal("only saved state in files can be copied")
	}
	defer w.LockHosts()()
	f := &world{Cluster: w.Clone(t), t: t, cache: w.cache}
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

// useT reports failures to another test, such as a part of the test that made the world.
func (w *world) useT(t testing.TB) { w.t, w.Cluster.T, w.API.T = t, t, t }

// manager returns the ID of this manager on the machines.
func (w *world) manager() string {
	w.t.Helper()
	id, err := w.service().Records.ManagerID(w.t.Context())
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
	for _, m := range w.Hosts {
		if m.Lock.Holder.Manager == from {
			m.Lock.Holder.Manager = is
		}
	}
}

// service returns a new process with the same saved state.
func (w *world) service() *Service {
	backend := w.records()
	files, err := backend.Files(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = files.Close() })
	return New(Config{
		Records: backend, Files: files, Catalogue: bundletest.LoadCatalogue(w.t), Cache: w.cache, Home: w.home,
		Connect: w.Connect, Dial: w.Dial, Now: w.Now, BootID: w.boot,
	})
}

// records opens the saved state as a new process does.
func (w *world) records() records.Backend {
	if w.open != nil {
		return w.open()
	}
	st, err := store.Open(w.home)
	if err != nil {
		w.t.Fatal(err)
	}
	return st
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
	return w.do(creating(w.Manifest()), want)
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
		out = append(out, o.Spec.Kind+" "+string(o.Status.State))
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
	p := w.prepared(w.service().Prepare(w.t.Context(), applying(w.Manifest()), nil))
	if !p.Plan().IsEmpty() {
		w.t.Errorf("there is something left to do: %+v", p.Plan().Steps)
	}
	if err := p.Close(); err != nil {
		w.t.Error(err)
	}
	if tokens := w.API.JoinTokens(); len(tokens) > 0 {
		w.t.Errorf("%d join tokens are left", len(tokens))
	}
	for name, m := range w.Hosts {
		if node := !strings.HasPrefix(name, "e"); w.API.HasObject("/api/v1/nodes/"+name) != node {
			w.t.Errorf("%s is a node: %t, want %t", name, !node, node)
		}
		if m.Lock.Held {
			w.t.Errorf("%s still holds the lock", name)
		}
	}
}

// bare checks that machines are as before the first operation.
func (w *world) bare() {
	w.t.Helper()
	for name, m := range w.Hosts {
		if len(m.AllState()) > 0 || m.HasLedger {
			w.t.Errorf("%s still has %v", name, m.AllState())
		}
	}
}
