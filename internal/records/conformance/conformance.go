// Package conformance tests the contract of package records for every backend. The test of
// a backend calls Run with a function that opens one.
package conformance

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
)

// A Subject is a backend under test.
type Subject struct {
	records.Backend
	// Again opens the same state as another process would.
	Again func() Subject
	// Tear adds bytes to a journal, as a crash can leave them. It is nil for a backend that
	// saves only whole events.
	Tear func(id string, bytes string)
	// Damage makes a saved operation unreadable. It is nil for a backend that cannot have such
	// operations.
	Damage func(id string)
}

var began = time.Date(2026, 11, 20, 18, 15, 2, 0, time.UTC)

// Run runs the suite. open returns an empty records.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	t.Run("manager id", func(t *testing.T) { managerID(t, open(t)) })
	t.Run("clusters", func(t *testing.T) { testClusters(t, open(t)) })
	t.Run("nodes", func(t *testing.T) { testNodes(t, open(t)) })
	t.Run("sources", func(t *testing.T) { testSources(t, open(t)) })
	t.Run("names", func(t *testing.T) { testNames(t, open(t)) })
	t.Run("cluster files", func(t *testing.T) { testClusterFiles(t, open(t)) })
	t.Run("cluster files, created once", func(t *testing.T) { createClusterFile(t, open(t)) })
	t.Run("backups", func(t *testing.T) { testBackups(t, open(t)) })
	t.Run("kubeconfig as file", func(t *testing.T) { kubeconfigAsFile(t, open(t)) })
	t.Run("known hosts", func(t *testing.T) { testKnownHosts(t, open(t)) })
	t.Run("cluster file as file", func(t *testing.T) { clusterFileAsFile(t, open(t)) })
	t.Run("lock", func(t *testing.T) { testLock(t, open(t)) })
	t.Run("lock and removal", func(t *testing.T) { lockAndRemoval(t, open(t)) })
	t.Run("lock of a saved holder", func(t *testing.T) { testSetHolder(t, open(t)) })
	t.Run("unreleased processes", func(t *testing.T) { testUnreleased(t, open(t)) })
	t.Run("operations", func(t *testing.T) { testOperations(t, open(t)) })
	t.Run("order", func(t *testing.T) { testOrder(t, open(t)) })
	t.Run("planned cluster", func(t *testing.T) { plannedCluster(t, open(t)) })
	t.Run("saved plans", func(t *testing.T) { testSavedPlans(t, open(t)) })
	t.Run("readable operations", func(t *testing.T) { readableOperations(t, open(t)) })
	t.Run("cancel", func(t *testing.T) { testCancel(t, open(t)) })
	t.Run("journal", func(t *testing.T) { testJournal(t, open(t)) })
	t.Run("failed journal", func(t *testing.T) { failedJournal(t, open(t)) })
	if open(t).Tear != nil {
		t.Run("torn journal", func(t *testing.T) { tornJournal(t, open(t)) })
		t.Run("damaged journal", func(t *testing.T) { damagedJournal(t, open(t)) })
	}
	t.Run("follow", func(t *testing.T) { testFollow(t, open(t)) })
	t.Run("follow an interrupted operation", func(t *testing.T) { followOrphan(t, open(t)) })
}

func managerID(t *testing.T, s Subject) {
	ids := make(chan string)
	for range 8 {
		go func() {
			id, err := s.Again().ManagerID(t.Context())
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

func newCluster(name string) *v1alpha1.Cluster {
	return &v1alpha1.Cluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Cluster"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ClusterSpec{Hosts: []v1alpha1.Host{
			{Name: "cp1", Address: "198.18.0.2", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}},
		}},
	}
}

func adminKubeconfig(t *testing.T, server string) []byte {
	t.Helper()
	text, err := kubeconfig.Admin{
		Cluster: "prod", Server: server, CA: []byte("a"), Certificate: []byte("b"), Key: []byte("c"),
	}.Bytes()
	requireNoError(t, err)
	return text
}

func testClusters(t *testing.T, s Subject) {
	_, err := s.Clusters().Load(t.Context(), "prod")
	wantErr(t, "reading what is not there", err, records.ErrNotFound)
	_, err = s.Kubeconfigs().Load(t.Context(), "prod")
	wantErr(t, "reading a kubeconfig that is not there", err, records.ErrNotFound)

	requireNoError(t, s.Clusters().Save(t.Context(), newCluster("prod"), nil))
	requireNoError(t, s.Clusters().Save(t.Context(), newCluster("lab"), nil))
	status := v1alpha1.ClusterStatus{Phase: v1alpha1.PhaseRunning, Version: "v1.37.1"}
	requireNoError(t, s.Clusters().SaveStatus(t.Context(), "prod", status))
	admin := adminKubeconfig(t, "https://198.18.0.2:6443")
	requireNoError(t, s.Kubeconfigs().Save(t.Context(), "prod", admin))
	if err := s.Kubeconfigs().Save(t.Context(), "prod", append(admin, "extensions: []\n"...)); err == nil {
		t.Error("a kubeconfig with other fields was saved")
	}
	want := newCluster("prod")
	want.Status = status
	got, err := s.Again().Clusters().Load(t.Context(), "prod")
	requireNoError(t, err)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("cluster (-want +got):\n%s", d)
	}
	// The status is kept apart: recording the spec again does not lose it.
	changed := newCluster("prod")
	changed.Spec.Bundle = "/srv/bundle"
	requireNoError(t, s.Clusters().Save(t.Context(), changed, nil))
	got, err = s.Clusters().Load(t.Context(), "prod")
	requireNoError(t, err)
	if got.Spec.Bundle != "/srv/bundle" || got.Status.Phase != v1alpha1.PhaseRunning {
		t.Errorf("after a second SaveCluster: bundle %q, phase %q", got.Spec.Bundle, got.Status.Phase)
	}
	names, err := s.Clusters().List(t.Context())
	requireNoError(t, err)
	if d := cmp.Diff([]string{"lab", "prod"}, names); d != "" {
		t.Errorf("clusters (-want +got):\n%s", d)
	}

	requireNoError(t, s.Clusters().Remove(t.Context(), "prod"))
	_, err = s.Clusters().Load(t.Context(), "prod")
	wantErr(t, "reading what was removed", err, records.ErrNotFound)
	_, err = s.Kubeconfigs().Load(t.Context(), "prod")
	wantErr(t, "reading the kubeconfig of what was removed", err, records.ErrNotFound)
	requireNoError(t, s.Clusters().Remove(t.Context(), "prod"))
}

// testNodes saves the nodes of a cluster whose status lists one of them.
func testNodes(t *testing.T, s Subject) {
	all := []v1alpha1.NodeStatus{{Name: "cp1", Ready: true, Version: "v1.37.1"}, {Name: "w1", Message: "no report"}}
	c := newCluster("prod")
	c.Status.Nodes, c.Status.NodeCounts = all[1:], v1alpha1.NodeCounts{Total: 2, Ready: 1}
	requireNoError(t, s.Clusters().Save(t.Context(), c, nil))
	wantNodes := func(when string, want []v1alpha1.NodeStatus) {
		t.Helper()
		got, err := s.Again().Clusters().LoadNodes(t.Context(), c)
		requireNoError(t, err)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("nodes %s (-want +got):\n%s", when, d)
		}
	}
	wantNodes("without a saved list", all[1:])
	requireNoError(t, s.Clusters().SaveNodes(t.Context(), "prod", all))
	wantNodes("with a saved list", all)
	c.Status.Nodes = []v1alpha1.NodeStatus{all[1], all[0]}
	wantNodes("of a complete status", c.Status.Nodes)
	if err := s.Clusters().SaveNodes(t.Context(), "../prod", all); err == nil {
		t.Error("the nodes of a cluster with an invalid name were saved")
	}
}

func testSources(t *testing.T, s Subject) {
	prod := newCluster("prod")
	mine := &records.Source{Text: []byte("# mine\n"), Path: "/home/ada/prod file.yaml"}
	requireNoError(t, s.Clusters().Save(t.Context(), prod, mine))
	requireNoError(t, s.Clusters().Save(t.Context(), prod, nil))
	requireNoError(t, s.Clusters().Save(t.Context(), newCluster("lab"), nil))
	source, err := s.Clusters().LoadSource(t.Context(), "prod")
	if d := cmp.Diff(mine, source); d != "" || err != nil {
		t.Errorf("source, %v, want what the user wrote (-want +got):\n%s", err, d)
	}
	_, err = s.Clusters().LoadKeptSource(t.Context(), "prod")
	wantErr(t, "a source that was not kept", err, records.ErrNotFound)
	requireNoError(t, s.Clusters().KeepSource(t.Context(), "prod"))
	requireNoError(t, s.Clusters().Save(t.Context(), prod, &records.Source{Text: []byte("# newer\n")}))
	if source, err := s.Clusters().LoadSource(t.Context(), "prod"); err != nil || source.Path != "" {
		t.Errorf("source %+v, %v: the path is another file's", source, err)
	}
	if b, err := s.Again().Clusters().LoadKeptSource(t.Context(), "prod"); string(b) != "# mine\n" || err != nil {
		t.Errorf("kept source %q, %v: want the one from before", b, err)
	}
	requireNoError(t, s.Clusters().Save(t.Context(), prod, new(records.Source)))
	_, err = s.Clusters().LoadSource(t.Context(), "prod")
	wantErr(t, "a source that was taken away", err, records.ErrNotFound)
	requireNoError(t, s.Clusters().KeepSource(t.Context(), "prod"))
	_, err = s.Clusters().LoadKeptSource(t.Context(), "prod")
	wantErr(t, "keeping that there is none", err, records.ErrNotFound)
	_, err = s.Clusters().LoadSource(t.Context(), "lab")
	wantErr(t, "the source of a cluster without one", err, records.ErrNotFound)
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
			wantErr(t, "SaveCluster", s.Clusters().Save(t.Context(), newCluster(tc.name), nil), records.ErrInvalidName)
			wantErr(t, "RemoveCluster", s.Clusters().Remove(t.Context(), tc.name), records.ErrInvalidName)
			_, err := s.Clusters().Load(t.Context(), tc.name)
			wantErr(t, "Cluster", err, records.ErrInvalidName)
			_, err = s.Locks().Acquire(t.Context(), tc.name, records.Holder{})
			wantErr(t, "Lock", err, records.ErrInvalidName)
			_, err = s.Journals().Open(t.Context(), tc.name)
			wantErr(t, "Journal", err, records.ErrInvalidName)
			_, err = s.Operations().Create(t.Context(), began, requestFor(tc.name, "create"), new(plan.Plan))
			wantErr(t, "NewOperation", err, records.ErrInvalidName)
		})
	}
}

func testLock(t *testing.T, s Subject) {
	if h, err := s.Locks().Holder(t.Context(), "prod"); h != nil || err != nil {
		t.Errorf("holder of what was never locked: %v, %v", h, err)
	}
	lock, err := s.Locks().Acquire(t.Context(), "prod", records.Holder{Operation: "op-1"})
	requireNoError(t, err)
	var held *records.HeldError
	if _, err = s.Again().Locks().Acquire(t.Context(), "prod", records.Holder{}); !errors.As(err, &held) {
		t.Fatalf("second lock: %v, want a HeldError", err)
	}
	if held.Cluster != "prod" || held.Holder.Operation != "op-1" || held.Holder.PID == 0 {
		t.Errorf("second lock: %+v, want it to name the holder", held)
	}
	if h, err := s.Again().Locks().Holder(t.Context(), "prod"); err != nil || h == nil || h.Operation != "op-1" {
		t.Errorf("holder: %+v, %v", h, err)
	}
	other, err := s.Again().Locks().Acquire(t.Context(), "lab", records.Holder{})
	if err != nil {
		t.Fatalf("another cluster: %v, want no lock across clusters", err)
	}
	requireNoError(t, other.Release())
	requireNoError(t, lock.Release())
	if h, err := s.Locks().Holder(t.Context(), "prod"); h != nil || err != nil {
		t.Errorf("holder after release: %v, %v", h, err)
	}
	lock, err = s.Again().Locks().Acquire(t.Context(), "prod", records.Holder{})
	requireNoError(t, err)
	requireNoError(t, lock.Release())
}

func lockAndRemoval(t *testing.T, s Subject) {
	lock, err := s.Locks().Acquire(t.Context(), "prod", records.Holder{Operation: "op-1"})
	requireNoError(t, err)
	requireNoError(t, s.Clusters().Save(t.Context(), newCluster("prod"), nil))
	requireNoError(t, s.Clusters().Remove(t.Context(), "prod"))
	requireNoError(t, lock.Release())
	lock, err = s.Again().Locks().Acquire(t.Context(), "prod", records.Holder{Operation: "op-2"})
	requireNoError(t, err)
	if h, err := s.Locks().Holder(t.Context(), "prod"); err != nil || h == nil || h.Operation != "op-2" {
		t.Errorf("holder: %+v, %v", h, err)
	}
	requireNoError(t, lock.Release())
}

// testSetHolder: the operation of a holder is known only after the lock is taken.
func testSetHolder(t *testing.T, s Subject) {
	lock, err := s.Locks().Acquire(t.Context(), "prod", records.Holder{})
	requireNoError(t, err)
	first := lock.Holder()
	if !first.IsSameProcess(records.ThisProcess()) || first.Operation != "" || first.Since.IsZero() {
		t.Errorf("holder %+v, want this process without an operation", first)
	}
	requireNoError(t, lock.SetHolder(t.Context(), records.Holder{Operation: "op-1"}))
	saved, err := s.Again().Locks().Holder(t.Context(), "prod")
	requireNoError(t, err)
	if saved == nil || !saved.Equal(lock.Holder()) || saved.Operation != "op-1" {
		t.Errorf("saved holder %+v, the lock has %+v", saved, lock.Holder())
	}
	var held *records.HeldError
	if _, err := s.Again().Locks().Acquire(t.Context(), "prod", records.Holder{}); !errors.As(err, &held) || !held.Holder.Equal(*saved) {
		t.Errorf("second lock: %v, want it to name %+v", err, saved)
	}
	requireNoError(t, lock.Release())
}

func testUnreleased(t *testing.T, s Subject) {
	lock, err := s.Locks().Acquire(t.Context(), "prod", records.Holder{})
	requireNoError(t, err)
	want := func(when string, want ...string) {
		t.Helper()
		got, err := s.Again().Locks().ListUnreleased(t.Context(), "prod")
		requireNoError(t, err)
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.SortSlices(strings.Compare)); d != "" {
			t.Errorf("processes %s (-want +got):\n%s", when, d)
		}
	}
	want("before any")
	var began []string
	for range 3 {
		process, err := s.Again().Locks().BeginHold(t.Context(), "prod")
		requireNoError(t, err)
		if process == "" || slices.Contains(began, process) {
			t.Errorf("process %q after %q", process, began)
		}
		began = append(began, process)
		want("that have begun", began...)
	}
	requireNoError(t, s.Locks().EndHold(t.Context(), "prod", began[1]))
	want("after one has ended", began[0], began[2])
	requireNoError(t, s.Locks().EndHold(t.Context(), "prod", began[1]))
	want("after one has ended twice", began[0], began[2])
	requireNoError(t, s.Locks().EndHold(t.Context(), "prod"))
	want("after all have ended")
	requireNoError(t, lock.Release())
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
