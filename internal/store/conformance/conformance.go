// Package conformance tests the contract of package store for every backend. The test of
// a backend calls Run with a function that opens one.
package conformance

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/store"
)

// Clusters is the part of a store under test that keeps clusters.
type Clusters interface {
	Default() (string, error)
	SetDefault(name string) error

	Load(name string) (*v1alpha1.Cluster, error)
	LoadSource(name string) (*store.Source, error)
	List() ([]string, error)
	Save(c *v1alpha1.Cluster, source *store.Source) error
	KeepSource(name string) error
	LoadKeptSource(name string) ([]byte, error)
	SaveStatus(name string, status v1alpha1.ClusterStatus) error
	SaveNodes(name string, nodes []v1alpha1.NodeStatus) error
	LoadNodes(c *v1alpha1.Cluster) ([]v1alpha1.NodeStatus, error)
	Remove(name string) error
}

// Kubeconfigs is the part of a store under test that keeps admin kubeconfigs.
type Kubeconfigs interface {
	Save(name string, content []byte) error
	Load(name string) ([]byte, error)
}

// Operations is the part of a store under test that keeps operations.
type Operations interface {
	Create(now time.Time, spec v1alpha1.OperationSpec, p *plan.Plan) (*v1alpha1.Operation, error)
	Save(o *v1alpha1.Operation) error
	Load(id string) (*v1alpha1.Operation, error)
	List(cluster string) ([]v1alpha1.Operation, error)
	Find(prefix string) (*v1alpha1.Operation, error)
	LoadPlan(id string) (*plan.Plan, error)
	RequestCancel(id string, r store.CancelRequest) error
	LoadCancelRequest(id string) (store.CancelRequest, error)
	WaitForCancel(ctx context.Context, id string, holder store.Holder, warn func(error)) (store.CancelRequest, error)
}

// Journals is the part of a store under test that reads journals.
type Journals interface {
	ReadEvents(id string, fn func(event.Event) error) error
	FollowEvents(ctx context.Context, id string, fn func(event.Event) error) error
}

// A Journal is the journal of a store under test.
type Journal interface {
	io.Closer
	Append(e event.Event) error
	Sync() error
	LastSeq() int64
}

// A Subject is a store under test. Functions stand for methods that return types of the
// backend.
type Subject struct {
	Clusters    Clusters
	Kubeconfigs Kubeconfigs
	Operations  Operations
	Journals    Journals
	ManagerID   func() (string, error)
	Holder      func(name string) (*store.Holder, error)
	Lock        func(ctx context.Context, name string, who store.Holder) (release func() error, err error)
	Journal     func(id string) (Journal, error)
	// Again opens the same state as another process would.
	Again func() Subject
	// Tear adds an incomplete event to a journal, as a crash does.
	Tear func(id string, bytes string)
}

var began = time.Date(2026, 11, 20, 18, 15, 2, 0, time.UTC)

// Run runs the suite. open returns an empty store.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	t.Run("manager id", func(t *testing.T) { managerID(t, open(t)) })
	t.Run("default", func(t *testing.T) { defaultCluster(t, open(t)) })
	t.Run("clusters", func(t *testing.T) { testClusters(t, open(t)) })
	t.Run("nodes", func(t *testing.T) { testNodes(t, open(t)) })
	t.Run("sources", func(t *testing.T) { testSources(t, open(t)) })
	t.Run("names", func(t *testing.T) { testNames(t, open(t)) })
	t.Run("lock", func(t *testing.T) { testLock(t, open(t)) })
	t.Run("lock and removal", func(t *testing.T) { lockAndRemoval(t, open(t)) })
	t.Run("operations", func(t *testing.T) { testOperations(t, open(t)) })
	t.Run("order", func(t *testing.T) { testOrder(t, open(t)) })
	t.Run("cancel", func(t *testing.T) { testCancel(t, open(t)) })
	t.Run("journal", func(t *testing.T) { testJournal(t, open(t)) })
	t.Run("torn journal", func(t *testing.T) { tornJournal(t, open(t)) })
	t.Run("damaged journal", func(t *testing.T) { damagedJournal(t, open(t)) })
	t.Run("follow", func(t *testing.T) { testFollow(t, open(t)) })
	t.Run("follow what nobody runs", func(t *testing.T) { followOrphan(t, open(t)) })
}

func managerID(t *testing.T, s Subject) {
	ids := make(chan string)
	for range 8 {
		go func() {
			id, err := s.Again().ManagerID()
			if err != nil {
				id = err.Error()
			}
			ids <- id
		}()
	}
	first := <-ids
	if len(first) != 32 {
		t.Errorf("manager id %q: want 32 digits", first)
	}
	for range 7 {
		if id := <-ids; id != first {
			t.Errorf("manager ids %q and %q: want one, whoever asks first", first, id)
		}
	}
}

func defaultCluster(t *testing.T, s Subject) {
	if d, err := s.Clusters.Default(); d != "" || err != nil {
		t.Errorf("before any choice: %q, %v", d, err)
	}
	requireNoError(t, s.Clusters.SetDefault("prod"))
	if d, err := s.Again().Clusters.Default(); d != "prod" || err != nil {
		t.Errorf("after SetDefault: %q, %v", d, err)
	}
	requireNoError(t, s.Clusters.SetDefault(""))
	requireNoError(t, s.Clusters.SetDefault(""))
	if d, err := s.Clusters.Default(); d != "" || err != nil {
		t.Errorf("after taking it back: %q, %v", d, err)
	}
}

func newCluster(name string) *v1alpha1.Cluster {
	return &v1alpha1.Cluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Cluster"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ClusterSpec{Hosts: []v1alpha1.Host{
			{Name: "cp1", Address: "198.18.0.2", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}},
		}},
	}
}

func testClusters(t *testing.T, s Subject) {
	_, err := s.Clusters.Load("prod")
	wantErr(t, "reading what is not there", err, store.ErrNotFound)
	_, err = s.Kubeconfigs.Load("prod")
	wantErr(t, "reading a kubeconfig that is not there", err, store.ErrNotFound)

	requireNoError(t, s.Clusters.Save(newCluster("prod"), nil))
	requireNoError(t, s.Clusters.Save(newCluster("lab"), nil))
	status := v1alpha1.ClusterStatus{Phase: v1alpha1.PhaseRunning, Version: "v1.37.1"}
	requireNoError(t, s.Clusters.SaveStatus("prod", status))
	admin, err := kubeconfig.Admin{
		Cluster: "prod", Server: "https://198.18.0.2:6443", CA: []byte("a"),
		Certificate: []byte("b"), Key: []byte("c"),
	}.Bytes()
	requireNoError(t, err)
	requireNoError(t, s.Kubeconfigs.Save("prod", admin))
	if err := s.Kubeconfigs.Save("prod", append(admin, "extensions: []\n"...)); err == nil {
		t.Error("a kubeconfig with other fields was saved")
	}
	requireNoError(t, s.Clusters.SetDefault("prod"))

	want := newCluster("prod")
	want.Status = status
	got, err := s.Again().Clusters.Load("prod")
	requireNoError(t, err)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("cluster (-want +got):\n%s", d)
	}
	// The status is kept apart: recording the spec again does not lose it.
	changed := newCluster("prod")
	changed.Spec.Bundle = "/srv/bundle"
	requireNoError(t, s.Clusters.Save(changed, nil))
	got, err = s.Clusters.Load("prod")
	requireNoError(t, err)
	if got.Spec.Bundle != "/srv/bundle" || got.Status.Phase != v1alpha1.PhaseRunning {
		t.Errorf("after a second SaveCluster: bundle %q, phase %q", got.Spec.Bundle, got.Status.Phase)
	}
	names, err := s.Clusters.List()
	requireNoError(t, err)
	if d := cmp.Diff([]string{"lab", "prod"}, names); d != "" {
		t.Errorf("clusters (-want +got):\n%s", d)
	}

	requireNoError(t, s.Clusters.Remove("prod"))
	_, err = s.Clusters.Load("prod")
	wantErr(t, "reading what was removed", err, store.ErrNotFound)
	_, err = s.Kubeconfigs.Load("prod")
	wantErr(t, "reading the kubeconfig of what was removed", err, store.ErrNotFound)
	if d, _ := s.Clusters.Default(); d != "" {
		t.Errorf("the default is %q after its removal", d)
	}
	requireNoError(t, s.Clusters.Remove("prod"))
}

// testNodes saves the nodes of a cluster whose status lists one of them.
func testNodes(t *testing.T, s Subject) {
	all := []v1alpha1.NodeStatus{{Name: "cp1", Ready: true, Version: "v1.37.1"}, {Name: "w1", Message: "no report"}}
	c := newCluster("prod")
	c.Status.Nodes, c.Status.NodeCounts = all[1:], v1alpha1.NodeCounts{Total: 2, Ready: 1}
	requireNoError(t, s.Clusters.Save(c, nil))
	wantNodes := func(when string, want []v1alpha1.NodeStatus) {
		t.Helper()
		got, err := s.Again().Clusters.LoadNodes(c)
		requireNoError(t, err)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("nodes %s (-want +got):\n%s", when, d)
		}
	}
	wantNodes("without a saved list", all[1:])
	requireNoError(t, s.Clusters.SaveNodes("prod", all))
	wantNodes("with a saved list", all)
	c.Status.Nodes = []v1alpha1.NodeStatus{all[1], all[0]}
	wantNodes("of a complete status", c.Status.Nodes)
	if err := s.Clusters.SaveNodes("../prod", all); err == nil {
		t.Error("the nodes of a cluster with an invalid name were saved")
	}
}

func testSources(t *testing.T, s Subject) {
	prod := newCluster("prod")
	mine := &store.Source{Text: []byte("# mine\n"), Path: "/home/ada/prod file.yaml"}
	requireNoError(t, s.Clusters.Save(prod, mine))
	requireNoError(t, s.Clusters.Save(prod, nil))
	requireNoError(t, s.Clusters.Save(newCluster("lab"), nil))
	source, err := s.Clusters.LoadSource("prod")
	if d := cmp.Diff(mine, source); d != "" || err != nil {
		t.Errorf("source, %v, want what the user wrote (-want +got):\n%s", err, d)
	}
	_, err = s.Clusters.LoadKeptSource("prod")
	wantErr(t, "a source that was not kept", err, store.ErrNotFound)
	requireNoError(t, s.Clusters.KeepSource("prod"))
	requireNoError(t, s.Clusters.Save(prod, &store.Source{Text: []byte("# newer\n")}))
	if source, err := s.Clusters.LoadSource("prod"); err != nil || source.Path != "" {
		t.Errorf("source %+v, %v: the path is another file's", source, err)
	}
	if b, err := s.Again().Clusters.LoadKeptSource("prod"); string(b) != "# mine\n" || err != nil {
		t.Errorf("kept source %q, %v: want the one from before", b, err)
	}
	requireNoError(t, s.Clusters.Save(prod, new(store.Source)))
	_, err = s.Clusters.LoadSource("prod")
	wantErr(t, "a source that was taken away", err, store.ErrNotFound)
	requireNoError(t, s.Clusters.KeepSource("prod"))
	_, err = s.Clusters.LoadKeptSource("prod")
	wantErr(t, "keeping that there is none", err, store.ErrNotFound)
	_, err = s.Clusters.LoadSource("lab")
	wantErr(t, "the source of a cluster without one", err, store.ErrNotFound)
}

func testNames(t *testing.T, s Subject) {
	for _, tc := range []struct{ name, reason string }{
		{"", "empty"},
		{"..", "a parent"},
		{"a/b", "a path"},
		{"Prod", "upper case"},
		{"-a", "a leading dash reads as an option"},
		{"a-", "not a DNS label"},
		{strings.Repeat("a", 64), "too long"},
		{"a\x00", "not text"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			wantErr(t, "SaveCluster", s.Clusters.Save(newCluster(tc.name), nil), store.ErrInvalidName)
			wantErr(t, "RemoveCluster", s.Clusters.Remove(tc.name), store.ErrInvalidName)
			_, err := s.Clusters.Load(tc.name)
			wantErr(t, "Cluster", err, store.ErrInvalidName)
			_, err = s.Lock(t.Context(), tc.name, store.Holder{})
			wantErr(t, "Lock", err, store.ErrInvalidName)
			_, err = s.Journal(tc.name)
			wantErr(t, "Journal", err, store.ErrInvalidName)
			_, err = s.Operations.Create(began, requestFor(tc.name, "create"), new(plan.Plan))
			wantErr(t, "NewOperation", err, store.ErrInvalidName)
		})
	}
}

func testLock(t *testing.T, s Subject) {
	if h, err := s.Holder("prod"); h != nil || err != nil {
		t.Errorf("holder of what was never locked: %v, %v", h, err)
	}
	release, err := s.Lock(t.Context(), "prod", store.Holder{Operation: "op-1"})
	requireNoError(t, err)
	var held *store.HeldError
	if _, err = s.Again().Lock(t.Context(), "prod", store.Holder{}); !errors.As(err, &held) {
		t.Fatalf("second lock: %v, want a HeldError", err)
	}
	if held.Cluster != "prod" || held.Holder.Operation != "op-1" || held.Holder.PID == 0 {
		t.Errorf("second lock: %+v, want it to name the holder", held)
	}
	if h, err := s.Again().Holder("prod"); err != nil || h == nil || h.Operation != "op-1" {
		t.Errorf("holder: %+v, %v", h, err)
	}
	other, err := s.Again().Lock(t.Context(), "lab", store.Holder{})
	if err != nil {
		t.Fatalf("another cluster: %v, want no lock across clusters", err)
	}
	requireNoError(t, other())
	requireNoError(t, release())
	if h, err := s.Holder("prod"); h != nil || err != nil {
		t.Errorf("holder after release: %v, %v", h, err)
	}
	release, err = s.Again().Lock(t.Context(), "prod", store.Holder{})
	requireNoError(t, err)
	requireNoError(t, release())
}

func lockAndRemoval(t *testing.T, s Subject) {
	release, err := s.Lock(t.Context(), "prod", store.Holder{Operation: "op-1"})
	requireNoError(t, err)
	requireNoError(t, s.Clusters.Save(newCluster("prod"), nil))
	requireNoError(t, s.Clusters.Remove("prod"))
	requireNoError(t, release())
	release, err = s.Again().Lock(t.Context(), "prod", store.Holder{Operation: "op-2"})
	requireNoError(t, err)
	if h, err := s.Holder("prod"); err != nil || h == nil || h.Operation != "op-2" {
		t.Errorf("holder: %+v, %v", h, err)
	}
	requireNoError(t, release())
}

// wantErr reports an error that is not the one wanted.
func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
