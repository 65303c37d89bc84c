package sharding

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// A group has processes that share clusters, with Leases in one API.
type group struct {
	t   *testing.T
	api *fake.Clientset

	mu      sync.Mutex
	cut     map[string]bool // processes whose requests fail
	running sync.WaitGroup
}

// A process is a member that runs.
type process struct {
	*Members
	changes int
	stop    func()
}

func newGroup(t *testing.T) *group {
	return &group{t: t, api: fake.NewClientset(), cut: map[string]bool{}}
}

// start starts a process.
func (g *group) start(identity string) *process { return g.startRelease(identity, "devel") }

// startRelease starts a process of a release.
func (g *group) startRelease(identity, release string) *process {
	g.t.Helper()
	p := new(process)
	p.Members = New(Config{
		Leases: &leases{g.api.CoordinationV1().Leases("system"), g, identity}, Group: "controllers", Identity: identity, Release: release,
		Log: slog.New(slog.DiscardHandler),
	})
	p.OnChange(func() { p.changes++ })
	ctx, stop := context.WithCancel(g.t.Context())
	ended := make(chan error, 1)
	g.running.Go(func() { ended <- p.Start(ctx) })
	p.stop = func() {
		stop()
		if err := <-ended; err != nil {
			g.t.Error(err)
		}
	}
	return p
}

// disconnect makes all requests of a process fail, or succeed again.
func (g *group) disconnect(identity string, is bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut[identity] = is
}

// count returns the number of clusters of each process, and reports clusters that belong to none or to several.
func (g *group) count(processes ...*process) (counts []int) {
	g.t.Helper()
	counts = make([]int, len(processes))
	for i := range 300 {
		key := types.NamespacedName{Namespace: "team", Name: fmt.Sprintf("c%d", i)}
		owners := 0
		for j, p := range processes {
			if p.Owns(key) {
				counts[j]++
				owners++
			}
		}
		if owners != 1 {
			g.t.Fatalf("%d processes own cluster %s", owners, key)
		}
	}
	return counts
}

// requireShares checks that each process has about as many clusters as the others.
func (g *group) requireShares(processes ...*process) {
	g.t.Helper()
	for i, n := range g.count(processes...) {
		if want := 300 / len(processes); n < want*3/4 || n > want*5/4 {
			g.t.Errorf("process %d has %d of 300 clusters, want about %d", i, n, want)
		}
	}
}

// pass lets the clock advance.
func pass(d time.Duration) { <-time.After(d) }

func TestMembers_ShareClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		a := g.start("a")
		pass(time.Second)
		key := types.NamespacedName{Namespace: "team", Name: "c1"}
		if a.Owns(key) {
			t.Error("a process has clusters before it can know the others that start")
		}
		pass(5 * time.Second)
		g.requireShares(a)
		b, c := g.start("b"), g.start("c")
		pass(time.Second)
		if b.Owns(key) || c.Owns(key) || !a.Owns(key) {
			t.Error("a new process has clusters before the others can know it")
		}
		pass(14 * time.Second)
		g.requireShares(a, b, c)
		changes := a.changes
		pass(10 * time.Minute)
		g.requireShares(a, b, c)
		if a.changes != changes {
			t.Errorf("%d changes in 10 minutes in which nothing happened", a.changes-changes)
		}

		b.stop()
		pass(6 * time.Second)
		g.requireShares(a, c)
		a.stop()
		c.stop()
	})
}

// TestMembers_OfOlderReleaseHaveNoClusters replaces the processes of a release by newer ones, one by one. The first one
// fails at once.
func TestMembers_OfOlderReleaseHaveNoClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		a, b := g.startRelease("a", "v0.3.0"), g.startRelease("b", "v0.3.0-4-gabc1234")
		pass(20 * time.Second)
		g.requireShares(a, b)
		broken := g.startRelease("broken", "v0.4.0")
		pass(20 * time.Second)
		g.requireShares(broken)
		if got := g.count(broken, a, b); got[1] != 0 || got[2] != 0 {
			t.Errorf("processes of an older release have %v clusters", got[1:])
		}
		broken.stop()
		pass(20 * time.Second)
		g.requireShares(a, b)

		c, d := g.startRelease("c", "v0.4.0"), g.startRelease("d", "v0.4.0")
		pass(20 * time.Second)
		g.requireShares(c, d)
		if got := g.count(c, d, a, b); got[2] != 0 || got[3] != 0 {
			t.Errorf("processes of an older release have %v clusters", got[2:])
		}
		for _, p := range []*process{a, b, c, d} {
			p.stop()
		}
	})
}

func TestMembers_TakeClustersOfEndedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		a, b, c := g.start("a"), g.start("b"), g.start("c")
		pass(20 * time.Second)
		before := map[string]bool{}
		for i := range 300 {
			key := types.NamespacedName{Namespace: "team", Name: fmt.Sprintf("c%d", i)}
			before[key.Name] = a.Owns(key)
		}
		g.disconnect("b", true)
		pass(22 * time.Second)
		g.requireShares(a, c)
		for i := range 300 {
			key := types.NamespacedName{Namespace: "team", Name: fmt.Sprintf("c%d", i)}
			if before[key.Name] && !a.Owns(key) {
				t.Fatalf("cluster %s has moved between two processes that continue", key)
			}
			if b.Owns(key) {
				t.Fatalf("a process without a valid Lease owns cluster %s", key)
			}
		}
		g.disconnect("b", false)
		pass(20 * time.Second)
		g.requireShares(a, b, c)

		g.disconnect("b", true)
		pass(10 * time.Minute)
		list, err := g.api.CoordinationV1().Leases("system").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 2 {
			t.Errorf("%d Leases (%v), want the Leases of the two processes that run", len(list.Items), err)
		}
		for _, p := range []*process{a, b, c} {
			p.stop()
		}
	})
}

func TestMembers_RepairsChangedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		a, b := g.start("a"), g.start("b")
		pass(20 * time.Second)
		for _, change := range []func() error{
			func() error { return a.Leases.Delete(t.Context(), "controllers.a", metav1.DeleteOptions{}) },
			func() error {
				is, err := a.Leases.Get(t.Context(), "controllers.a", metav1.GetOptions{})
				if err != nil {
					return err
				}
				is.Labels, is.Spec.HolderIdentity, is.Spec.RenewTime = nil, nil, nil
				_, err = a.Leases.Update(t.Context(), is, metav1.UpdateOptions{})
				return err
			},
		} {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			pass(12 * time.Second)
			g.requireShares(a, b)
		}
		a.stop()
		b.stop()
	})
}

// errUnavailable is the result of a request of a process that is disconnected.
var errUnavailable = apierrors.NewServiceUnavailable("disconnected")

// leases are the Leases as a process sees them.
type leases struct {
	coordination.LeaseInterface
	group *group
	of    string
}

// check returns an error if the process is disconnected.
func (l *leases) check() error {
	l.group.mu.Lock()
	defer l.group.mu.Unlock()
	if l.group.cut[l.of] {
		return errUnavailable
	}
	return nil
}

func (l *leases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	return l.LeaseInterface.Get(ctx, name, o)
}

func (l *leases) List(ctx context.Context, o metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	return l.LeaseInterface.List(ctx, o)
}

func (l *leases) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	if err := l.check(); err != nil {
		return err
	}
	return l.LeaseInterface.Delete(ctx, name, o)
}
