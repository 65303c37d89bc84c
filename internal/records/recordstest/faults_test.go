package recordstest_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/recordstest"
)

// notCounted are the methods that save nothing, or only make local files and directories.
var notCounted = []string{
	"Backend.Backups", "Backend.ClusterFiles", "Backend.Clusters", "Backend.Files", "Backend.Journals", "Backend.Kubeconfigs",
	"Backend.Locks", "Backend.ManagerID", "Backend.Operations",
	"Backups.Dir", "Backups.ListClusters", "Backups.LoadFormerSigners", "Backups.MakeDir",
	"ClusterFiles.Load", "ClusterFiles.Location",
	"Clusters.List", "Clusters.Load", "Clusters.LoadKeptSource", "Clusters.LoadNodes", "Clusters.LoadSource",
	"Journal.LastSeq", "Journals.FollowEvents", "Journals.ReadEvents",
	"Kubeconfigs.Load", "Kubeconfigs.Location",
	"Lock.Holder", "Lock.ID", "Lock.NotifyLost", "Locks.Holder", "Locks.ListUnreleased",
	"Operations.Find", "Operations.List", "Operations.ListReadable", "Operations.Load", "Operations.LoadCancelRequest",
	"Operations.LoadPlan", "Operations.LoadPlannedCluster", "Operations.WaitForCancel",
}

// TestFaults_CountAllWrites carries out each write of a backend once. A new method of an
// interface fails the test until it is counted here or there.
func TestFaults_CountAllWrites(t *testing.T) {
	f := recordstest.NewFaults(0, recordstest.Before)
	writeAll(t, f.Wrap(recordstest.NewMemory(t).Open()))
	got := append(f.Writes(), notCounted...)
	slices.Sort(got)
	var want []string
	for _, subject := range []reflect.Type{
		reflect.TypeFor[records.Backend](), reflect.TypeFor[records.Clusters](), reflect.TypeFor[records.ClusterFiles](),
		reflect.TypeFor[records.Kubeconfigs](), reflect.TypeFor[records.Locks](), reflect.TypeFor[records.Lock](),
		reflect.TypeFor[records.Operations](), reflect.TypeFor[records.Journals](), reflect.TypeFor[records.Journal](),
		reflect.TypeFor[records.Backups](),
	} {
		for m := range subject.Methods() {
			want = append(want, subject.Name()+"."+m.Name)
		}
	}
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("methods (-of the interfaces +counted or not counted):\n%s", d)
	}
}

// writeAll carries out each write of a backend once.
func writeAll(t *testing.T, b records.Backend) {
	t.Helper()
	ctx := t.Context()
	c := &v1alpha1.Cluster{}
	c.Name = "prod"
	lock, err := b.Locks().Acquire(ctx, "prod", records.Holder{})
	noError(t, err)
	o, err := b.Operations().Create(ctx, time.Now(), v1alpha1.OperationSpec{
		ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: "create",
	}, new(plan.Plan))
	noError(t, err)
	noError(t, lock.SetHolder(ctx, records.Holder{Operation: o.Name}))
	noError(t, lock.Check(ctx))
	_, err = b.Locks().BeginHold(ctx, "prod")
	noError(t, err)
	noError(t, b.Clusters().Save(ctx, c, nil))
	noError(t, b.Clusters().KeepSource(ctx, "prod"))
	noError(t, b.Clusters().SaveNodes(ctx, "prod", nil))
	noError(t, b.Clusters().SaveStatus(ctx, "prod", c.Status))
	noError(t, b.Operations().SavePlan(ctx, o, new(plan.Plan)))
	noError(t, b.Operations().Save(ctx, o))
	noError(t, b.Operations().Update(ctx, o.Name, func(*v1alpha1.Operation) error { return nil }))
	noError(t, b.Operations().RequestCancel(ctx, o.Name, records.CancelRequest{}))
	j, err := b.Journals().Open(ctx, o.Name)
	noError(t, err)
	noError(t, j.Append(event.Event{Type: event.Note}))
	noError(t, j.Sync())
	noError(t, j.Close())
	for range 2 { // the second call reads
		_, err = b.ClusterFiles().LoadOrCreate(ctx, "prod", records.RegistryCA, func() ([]byte, error) { return []byte("ca"), nil })
		noError(t, err)
	}
	noError(t, b.ClusterFiles().Save(ctx, "prod", records.RegistryCA, nil))
	noError(t, b.Kubeconfigs().Save(ctx, "prod", adminKubeconfig(t)))
	noError(t, b.Backups().AdoptKey(ctx, "prod", []byte("key"), "former"))
	noError(t, b.Locks().EndHold(ctx, "prod"))
	noError(t, b.Clusters().Remove(ctx, "prod"))
	noError(t, lock.Release())
}

func TestFaults_FailOneWrite(t *testing.T) {
	for _, tc := range []struct {
		kind   recordstest.Kind
		reason string
		saved  string // clusters
	}{
		{recordstest.Before, "only the other writes are saved", "a c"},
		{recordstest.After, "the write is saved, although it fails", "a b c"},
		{recordstest.Since, "later writes fail too", "a"},
	} {
		t.Run(string(tc.kind), func(t *testing.T) {
			m, f := recordstest.NewMemory(t), recordstest.NewFaults(2, tc.kind)
			b := f.Wrap(m.Open())
			var failed []string
			for _, name := range []string{"a", "b", "c"} {
				c := &v1alpha1.Cluster{}
				c.Name = name
				if err := b.Clusters().Save(t.Context(), c, nil); errors.Is(err, recordstest.ErrFault) {
					failed = append(failed, name)
				}
			}
			names, err := m.Open().Clusters().List(t.Context())
			noError(t, err)
			if got := strings.Join(names, " "); got != tc.saved || !slices.Contains(failed, "b") || slices.Contains(failed, "a") {
				t.Errorf("saved %s, want %s: %s; %v failed", got, tc.saved, tc.reason, failed)
			}
		})
	}
}

// TestFaults_EndJournal: after a fault the journal has no gap.
func TestFaults_EndJournal(t *testing.T) {
	for _, kind := range []recordstest.Kind{recordstest.Before, recordstest.After} {
		t.Run(string(kind), func(t *testing.T) {
			m := recordstest.NewMemory(t)
			id := newOperation(t, m.Open())
			j, err := recordstest.NewFaults(3, kind).Wrap(m.Open()).Journals().Open(t.Context(), id)
			noError(t, err)
			noError(t, j.Append(event.Event{Message: "1"}))
			for _, message := range []string{"2", "3"} {
				if err := j.Append(event.Event{Message: message}); !errors.Is(err, recordstest.ErrFault) {
					t.Errorf("appending %s: %v", message, err)
				}
			}
			noError(t, j.Close())
			want := map[recordstest.Kind]string{recordstest.Before: "1", recordstest.After: "12"}[kind]
			if got := messages(t, m.Open(), id); got != want {
				t.Errorf("events %q, want %q", got, want)
			}
		})
	}
}

// TestFaults_CreateNoFile: the next caller creates the file, or gets the saved one.
func TestFaults_CreateNoFile(t *testing.T) {
	for kind, want := range map[recordstest.Kind]string{recordstest.Before: "second", recordstest.After: "first"} {
		t.Run(string(kind), func(t *testing.T) {
			m := recordstest.NewMemory(t)
			load := func(b records.Backend, text string) (string, error) {
				got, err := b.ClusterFiles().LoadOrCreate(t.Context(), "prod", "file", func() ([]byte, error) { return []byte(text), nil })
				return string(got), err
			}
			if _, err := load(recordstest.NewFaults(1, kind).Wrap(m.Open()), "first"); !errors.Is(err, recordstest.ErrFault) {
				t.Errorf("with a fault: %v", err)
			}
			if got, err := load(m.Open(), "second"); got != want || err != nil {
				t.Errorf("without a fault: %q, %v, want %q", got, err, want)
			}
		})
	}
}
