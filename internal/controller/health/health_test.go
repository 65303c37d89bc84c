package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/inspect"
)

// A fleet has clusters with chosen answers, and their objects.
type fleet struct {
	client.Client
	t *testing.T

	mu         sync.Mutex
	dead       map[string]bool // clusters that do not answer
	probes     map[string]int  // queries of the API, by cluster
	fresh      map[string]int  // queries that do not use records from memory
	writes     map[string]int
	object     map[string]*v1alpha1.Cluster
	operations []v1alpha1.Operation
}

func newFleet(t *testing.T, names ...string) *fleet {
	f := &fleet{t: t, dead: map[string]bool{}, probes: map[string]int{}, fresh: map[string]int{}, writes: map[string]int{}}
	f.object = map[string]*v1alpha1.Cluster{}
	for _, name := range names {
		c := new(v1alpha1.Cluster)
		c.Namespace, c.Name, c.UID, c.Generation = "team", name, types.UID(name), 1
		c.Spec.Hosts = []v1alpha1.Host{{Name: "cp1"}}
		c.Status.Conditions = []metav1.Condition{{Type: "Created", Status: metav1.ConditionTrue}}
		f.object[name] = c
	}
	return f
}

// Get reads the object of a cluster.
func (f *fleet) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.object[key.Name]
	if c == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	c.DeepCopyInto(into.(*v1alpha1.Cluster))
	return nil
}

// List returns the operations of all clusters.
func (f *fleet) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	into.(*v1alpha1.OperationList).Items = slices.Clone(f.operations)
	return nil
}

// Status returns the writer of statuses.
func (f *fleet) Status() client.SubResourceWriter { return statusWriter{f: f} }

type statusWriter struct {
	client.SubResourceWriter
	f *fleet
}

// Apply saves the conditions and the summary.
func (w statusWriter) Apply(_ context.Context, o runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	var is v1alpha1.Cluster
	if err := json.Unmarshal(text, &is); err != nil {
		return err
	}
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	c := w.f.object[is.Name]
	for _, condition := range is.Status.Conditions {
		c.Status.Conditions = slices.DeleteFunc(c.Status.Conditions, func(o metav1.Condition) bool { return o.Type == condition.Type })
		c.Status.Conditions = append(c.Status.Conditions, condition)
	}
	c.Status.Summary = is.Status.Summary
	w.f.writes[is.Name]++
	return nil
}

// QueryAPI implements Source.
func (f *fleet) QueryAPI(ctx context.Context, c *v1alpha1.Cluster, q Query) (*inspect.APIReport, error) {
	f.mu.Lock()
	if !q.ThroughHosts {
		f.probes[c.Name]++
	}
	if q.Fresh && !q.ThroughHosts {
		f.fresh[c.Name]++
	}
	dead := f.dead[c.Name]
	f.mu.Unlock()
	if dead {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &inspect.APIReport{Answers: true, Nodes: []inspect.NodeInfo{{Name: "cp1", Ready: "Ready"}}}, nil
}

// QueryHosts implements Source.
func (f *fleet) QueryHosts(ctx context.Context, c *v1alpha1.Cluster, _ Query) (*inspect.HealthReport, error) {
	f.mu.Lock()
	dead := f.dead[c.Name]
	f.mu.Unlock()
	if dead {
		<-ctx.Done()
		return nil, errors.New("no host responds")
	}
	return healthy(), nil
}

// healthy returns the report of a healthy cluster with one host.
func healthy() *inspect.HealthReport {
	return &inspect.HealthReport{
		Hosts: []inspect.HostHealth{{Name: "cp1", Endpoint: "ok"}},
		Etcd:  inspect.EtcdInfo{Members: []inspect.EtcdMember{{Name: "cp1", Answers: true, Leader: true, Healthy: true}}},
		Certificates: []inspect.Certificate{
			{Name: "apiserver", Host: "cp1", Expires: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)},
		},
	}
}

// count returns the number of queries of an API so far.
func (f *fleet) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.probes[name]
}

// countWrites returns the number of writes of a status so far.
func (f *fleet) countWrites(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes[name]
}

// condition returns a condition of a cluster.
func (f *fleet) condition(name, kind string) metav1.Condition {
	f.mu.Lock()
	defer f.mu.Unlock()
	is := meta.FindStatusCondition(f.object[name].Status.Conditions, kind)
	if is == nil {
		return metav1.Condition{}
	}
	return *is
}

// run runs a prober of all clusters while act runs.
func (f *fleet) run(c Config, act func()) {
	f.t.Helper()
	c.Client, c.Source, c.Now, c.Log = f, f, time.Now, slog.New(slog.DiscardHandler)
	p := New(c)
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Start(ctx) }() // ends with ctx
	for name := range f.object {
		if _, err := p.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: name}}); err != nil {
			f.t.Error(err)
		}
	}
	act()
	cancel()
	if err := <-ended; err != nil {
		f.t.Error(err)
	}
}

// pass lets the clock advance.
func pass(d time.Duration) { <-time.After(d) }

func TestProber_DeadClustersDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []string
		for i := range 20 {
			names = append(names, fmt.Sprintf("c%d", i))
		}
		all := append(slices.Clone(names), "dead")
		for i := range 479 {
			all = append(all, fmt.Sprintf("dead%d", i))
		}
		f := newFleet(t, all...)
		for _, name := range all[len(names):] {
			f.dead[name] = true
		}
		f.run(Config{}, func() { pass(10 * time.Minute) })
		for _, name := range names {
			// The period is 24 to 36 seconds.
			if n := f.count(name); n < 16 || n > 26 {
				t.Errorf("cluster %s was probed %d times in 10 minutes, want 16 to 26", name, n)
			}
			if is := f.condition(name, "Ready"); is.Status != metav1.ConditionTrue {
				t.Errorf("cluster %s: Ready is %s (%s): %s", name, is.Status, is.Reason, is.Message)
			}
		}
		if n := f.count("dead"); n < 4 || n > 14 {
			t.Errorf("a dead cluster was probed %d times in 10 minutes, want 4 to 14: it is probed once a minute after 3 failures", n)
		}
		if n := f.fresh["dead"]; n != maxFresh {
			t.Errorf("%d probes of a dead cluster have read its records again, want %d", n, maxFresh)
		}
	})
}

func TestProber_ShowsUnknownWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "prod")
		f.run(Config{}, func() {
			pass(5 * time.Minute)
			if is := f.condition("prod", "Ready"); is.Status != metav1.ConditionTrue || is.Reason != "NodesReady" {
				t.Errorf("Ready is %s (%s) while all is healthy", is.Status, is.Reason)
			}
			f.mu.Lock()
			f.dead["prod"] = true
			f.mu.Unlock()
			pass(39*time.Second - 36*time.Second)
			if is := f.condition("prod", "Ready"); is.Status != metav1.ConditionTrue {
				t.Errorf("Ready is %s before 40 seconds without an answer", is.Status)
			}
			pass(40*time.Second + 15*time.Second)
			if is := f.condition("prod", "Ready"); is.Status != metav1.ConditionUnknown || is.Reason != "NoAnswer" {
				t.Errorf("Ready is %s (%s) after 40 seconds without an answer, want Unknown", is.Status, is.Reason)
			}
			if is := f.condition("prod", "NeedsAttention"); is.Status != metav1.ConditionTrue || is.Reason != "NoAnswer" {
				t.Errorf("NeedsAttention is %s (%s)", is.Status, is.Reason)
			}
			pass(2 * time.Hour)
			before := f.count("prod")
			pass(time.Hour)
			if n := f.count("prod") - before; n < 4 || n > 8 {
				t.Errorf("%d probes in the hour after a failure of two hours, want one in 10 minutes", n)
			}
			f.mu.Lock()
			f.dead["prod"] = false
			f.mu.Unlock()
			pass(13 * time.Minute)
			if is := f.condition("prod", "Ready"); is.Status != metav1.ConditionTrue {
				t.Errorf("Ready is %s (%s) after the cluster answers again", is.Status, is.Reason)
			}
		})
	})
}

func TestProber_WritesOnlyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "prod")
		f.run(Config{}, func() { pass(29 * time.Minute) })
		if n := f.writes["prod"]; n < 5 || n > 9 {
			t.Errorf("%d writes of the status of a healthy cluster in 29 minutes, want one in 5 minutes and the first ones", n)
		}
		before := f.writes["prod"]
		f.run(Config{}, func() { pass(4 * time.Minute) })
		if n := f.writes["prod"] - before; n != 0 {
			t.Errorf("%d writes after a restart, want none: nothing has changed", n)
		}
	})
}

func TestProber_WritesAtMostEveryTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "prod")
		const soon = 50 * time.Millisecond
		f.run(Config{Times: Times{Period: soon, Slow: soon, Slowest: soon, API: soon, Hosts: soon, Unanswered: soon}}, func() {
			pass(10 * time.Second)
			before := f.countWrites("prod")
			for i := range 100 { // the cluster answers, or it does not, in turns
				f.mu.Lock()
				f.dead["prod"] = i%2 == 0
				f.mu.Unlock()
				pass(200 * time.Millisecond)
			}
			if n := f.countWrites("prod") - before; n < 5 || n > 11 {
				t.Errorf("%d writes in 20 seconds while the status changed all the time, want at most one in 2 seconds", n)
			}
		})
	})
}

func TestProber_ShowsClustersThatAreNotProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "new", "stalled", "leaving")
		f.object["new"].Status.Conditions = nil
		f.object["stalled"].Status.Conditions = []metav1.Condition{{Type: "Stalled", Status: metav1.ConditionTrue, Reason: "InvalidCluster"}}
		f.object["leaving"].DeletionTimestamp = &metav1.Time{Time: time.Now()}
		f.run(Config{}, func() { pass(2 * time.Minute) })
		for name, want := range map[string]string{"new": " ", "stalled": "False NotCreated", "leaving": "Unknown Deleting"} {
			is := f.condition(name, "Ready")
			if got := string(is.Status) + " " + is.Reason; got != want || f.count(name) != 0 {
				t.Errorf("cluster %s: Ready is %s after %d probes, want %s and no probe", name, got, f.count(name), want)
			}
		}
		if f.writes["new"] != 0 || f.writes["stalled"] != 1 {
			t.Errorf("writes of the statuses: %v, want none for a new Cluster, and one for a stalled one", f.writes)
		}
		if is := f.condition("stalled", "NeedsAttention"); is.Status != metav1.ConditionTrue {
			t.Errorf("NeedsAttention is %s for a stalled Cluster", is.Status)
		}
	})
}
