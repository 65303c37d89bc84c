package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/store/kube"
	"slipway.dev/slipway/internal/store/kube/archive"
	"slipway.dev/slipway/internal/testutil/faultproxy"
)

// A budget is a number of writes after which every other one fails, as after a crash.
type budget struct {
	mu   sync.Mutex
	left int // negative: no limit
}

func (b *budget) set(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = n
}

// spend reports whether a write is possible.
func (b *budget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left > 0 {
		b.left--
		return true
	}
	return b.left < 0
}

// faultyFiles are an archive that fails without budget, or cannot be reached.
type faultyFiles struct {
	archive.Files
	budget      *budget
	unreachable bool
	reads       atomic.Int32
}

func (f *faultyFiles) List(ctx context.Context, prefix string) ([]copies.File, error) {
	f.reads.Add(1)
	if f.unreachable {
		return nil, syscall.EHOSTUNREACH
	}
	return f.Files.List(ctx, prefix)
}

func (f *faultyFiles) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if !f.budget.spend() {
		return syscall.ENOSPC
	}
	return f.Files.Put(ctx, name, write)
}

func (f *faultyFiles) Remove(ctx context.Context, name string) error {
	if !f.budget.spend() {
		return syscall.EROFS
	}
	return f.Files.Remove(ctx, name)
}

// A history is a namespace with operations of one cluster, and what was saved about them.
type history struct {
	kube.Config
	store  *kube.Store
	ids    []string // oldest first
	events map[string][]event.Event
}

// newHistory saves operations from words such as "apply:Succeeded", oldest first.
func newHistory(t *testing.T, c kube.Config, words string) *history {
	t.Helper()
	h := &history{Config: c, store: openStore(t, c), events: map[string][]event.Event{}}
	for i, word := range strings.Fields(words) {
		kind, state, _ := strings.Cut(word, ":")
		spec := v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: kind}
		o, err := h.store.Operations().Create(t.Context(), time.Now(), spec, &plan.Plan{Cluster: "prod", Digest: fmt.Sprint("sha256:", i)})
		requireNoError(t, err)
		j, err := h.store.Journals().Open(t.Context(), o.Name)
		requireNoError(t, err)
		for n := range int64(6) {
			requireNoError(t, j.Append(event.Event{Type: event.StepProgress, Task: "load", Host: "w1", Done: n, Total: 6}))
			if n%3 == 0 {
				requireNoError(t, j.Sync()) // several parts
			}
		}
		requireNoError(t, j.Append(event.Event{Type: event.OperationFinished, Operation: o.Name, Outcome: event.Succeeded}))
		requireNoError(t, j.Close())
		now := metav1.NewTime(time.Now().Truncate(time.Second))
		o.Status.State, o.Status.StartTime, o.Status.EndTime, o.Status.Message = v1alpha1.OperationState(state), &now, &now, word
		requireNoError(t, h.store.Operations().Save(t.Context(), o))
		h.ids = append(h.ids, o.Name)
		h.events[o.Name] = eventsOf(t, h.store, o.Name)
	}
	return h
}

func eventsOf(t *testing.T, s *kube.Store, id string) (out []event.Event) {
	t.Helper()
	requireNoError(t, s.Journals().ReadEvents(t.Context(), id, func(e event.Event) error { out = append(out, e); return nil }))
	return out
}

// requireComplete requires that all calls return what was saved, wherever it is.
func (h *history) requireComplete(t *testing.T) {
	t.Helper()
	s := openStore(t, h.Config)
	ops, damaged, err := s.Operations().ListReadable(t.Context(), "prod")
	requireNoError(t, err)
	var ids []string
	for _, o := range ops {
		ids = append(ids, o.Name)
	}
	want := slices.Clone(h.ids)
	slices.Reverse(want)
	if d := cmp.Diff(want, ids); d != "" || len(damaged) > 0 {
		t.Fatalf("operations (-want +got):\n%s%v", d, damaged)
	}
	for i, id := range h.ids {
		o, err := s.Operations().Load(t.Context(), id)
		requireNoError(t, err)
		listed := ops[len(ops)-1-i]
		if d := cmp.Diff(*o, listed, cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion", "ManagedFields")); d != "" {
			t.Errorf("operation %s (-loaded +listed):\n%s", id, d)
		}
		p, err := s.Operations().LoadPlan(t.Context(), id)
		requireNoError(t, err)
		if want := fmt.Sprint("sha256:", i); p.Digest != want {
			t.Errorf("plan of operation %s: %s, want %s", id, p.Digest, want)
		}
		if d := cmp.Diff(h.events[id], eventsOf(t, s, id)); d != "" {
			t.Fatalf("events of operation %s (-want +got):\n%s", id, d)
		}
	}
}

// objects returns the operations that are objects, by id, and the number and types of their parts. A
// line is "KIND:STATE parts".
func (h *history) objects(t *testing.T) (out []string) {
	t.Helper()
	c := h.Config
	c.Archive = nil
	ops, err := openStore(t, c).Operations().List(t.Context(), "prod")
	requireNoError(t, err)
	for _, o := range ops {
		parts := map[v1alpha1.OperationLogType]int{}
		for _, p := range listParts(t, h.Namespace, v1alpha1.LabelOperationUID+"="+string(o.UID)) {
			parts[p.Spec.Type]++
		}
		line := o.Status.Message
		switch {
		case len(parts) == 1 && parts[v1alpha1.OperationLogSummary] == 1:
			line += " summary"
		case parts[v1alpha1.OperationLogSummary] == 0:
			line += " complete"
		default:
			line += fmt.Sprint(" ", parts)
		}
		out = append(out, line)
	}
	return out
}

// newArchived returns the configuration of a store with an archive, whose writes have a budget.
func newArchived(t *testing.T) (kube.Config, *faultyFiles, *faultproxy.Proxy) {
	t.Helper()
	p := faultproxy.New(t, server.Admin)
	c := newConfig(t, p)
	files := &faultyFiles{Files: openDirectory(t, t.TempDir()+"/archive"), budget: &budget{left: -1}}
	c.Archive = files
	return c, files, p
}

const (
	manyOperations = "create:Succeeded apply:Failed apply:Succeeded etcd-restore:Succeeded apply:Cancelled apply:Succeeded " +
		"renew-certs:Succeeded etcd-defrag:Failed apply:Succeeded renew-certs:Failed etcd-defrag:Succeeded"
	fewObjects = "etcd-defrag:Succeeded summary, renew-certs:Failed complete, apply:Succeeded summary, etcd-defrag:Failed summary, " +
		"renew-certs:Succeeded summary, etcd-restore:Succeeded summary, create:Succeeded summary"
)

// TestRetain_FinishesAfterEveryWrite lets one write succeed before each crash, and requires that all
// records are complete after each of them.
func TestRetain_FinishesAfterEveryWrite(t *testing.T) {
	c, files, p := newArchived(t)
	h := newHistory(t, c, manyOperations)
	h.requireComplete(t)
	p.Inject(func(r *http.Request) faultproxy.Fault {
		if faultproxy.Full.Fits(r) && !files.budget.spend() {
			return faultproxy.Full
		}
		return faultproxy.Pass
	})
	crashes := 0
	for ; ; crashes++ {
		files.budget.set(1)
		err := h.store.Retain(t.Context(), "prod")
		if err == nil {
			break
		}
		var list diag.List
		if !errors.As(err, &list) || len(list) != 1 || list[0].Hint == "" {
			t.Fatalf("error %v, want one diagnostic", err)
		}
		h.requireComplete(t)
		if crashes > 500 {
			t.Fatalf("Retain does not finish: %v", err)
		}
	}
	const fewest = 4 // of an operation: its file, the index, the summary or the deletion
	if crashes < fewest*len(h.ids) {
		t.Errorf("%d crashes of %d operations: writes are missing", crashes, len(h.ids))
	}
	if d := cmp.Diff(strings.Split(fewObjects, ", "), h.objects(t)); d != "" {
		t.Errorf("objects (-want +got):\n%s", d)
	}
	files.budget.set(0)
	if err := h.store.Retain(t.Context(), "prod"); err != nil {
		t.Errorf("another Retain writes again: %v", err)
	}
	requireCollected(t, h)
}

// requireCollected waits until the parts of deleted operations are deleted too.
func requireCollected(t *testing.T, h *history) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	removed := h.ids[1] // the oldest that was deleted
	for slices.ContainsFunc(listParts(t, h.Namespace, ""), func(p v1alpha1.OperationLog) bool { return p.Spec.OperationRef.Name == removed }) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("parts of the deleted operation %s remain", removed)
		}
	}
}

func TestRetain_OvercomesFaults(t *testing.T) {
	c, _, p := newArchived(t)
	h := newHistory(t, c, manyOperations)
	n := 0
	var mu sync.Mutex
	p.Inject(func(r *http.Request) faultproxy.Fault {
		mu.Lock()
		defer mu.Unlock()
		if n++; n%3 > 0 {
			return faultproxy.Pass
		}
		return temporary[n/3%5]
	})
	var all sync.WaitGroup
	for range 3 { // at the same time
		all.Go(func() {
			if err := openStore(t, h.Config).Retain(t.Context(), "prod"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	p.Inject(nil)
	h.requireComplete(t)
	if d := cmp.Diff(strings.Split(fewObjects, ", "), h.objects(t)); d != "" {
		t.Errorf("objects (-want +got):\n%s", d)
	}
}

// TestStore_FindsArchivedOperations uses the calls with ids.
func TestStore_FindsArchivedOperations(t *testing.T) {
	c, _, _ := newArchived(t)
	h := newHistory(t, c, manyOperations)
	requireNoError(t, h.store.Retain(t.Context(), "prod"))
	id := h.ids[1]
	o, err := h.store.Operations().Find(t.Context(), id[:len(id)-2])
	if err != nil || o.Name != id {
		t.Errorf("found %v, %v", o, err)
	}
	var many *records.AmbiguousError
	_, err = h.store.Operations().Find(t.Context(), "20")
	if !errors.As(err, &many) || len(many.IDs) != len(h.ids) || many.IDs[0] != h.ids[len(h.ids)-1] {
		t.Errorf("an ambiguous prefix: %v", err)
	}
	for _, id := range []string{id, h.ids[len(h.ids)-1]} { // deleted, and with a summary
		var got []event.Event
		err := h.store.Journals().FollowEvents(t.Context(), id, func(e event.Event) error { got = append(got, e); return nil })
		if d := cmp.Diff(h.events[id], got); d != "" || err != nil {
			t.Errorf("followed events (-want +got):\n%s%v", d, err)
		}
	}
	if _, err := h.store.Journals().Open(t.Context(), id); !errors.Is(err, records.ErrNotFound) {
		t.Errorf("opening the journal of an archived operation: %v", err)
	}
	all, err := h.store.Operations().List(t.Context(), "")
	if err != nil || len(all) != len(h.ids) {
		t.Errorf("%d operations of all clusters, %v", len(all), err)
	}
}

// TestRetain_RemovesNothingIfArchiveFails requires one diagnostic, and that everything remains.
func TestRetain_RemovesNothingIfArchiveFails(t *testing.T) {
	c, files, _ := newArchived(t)
	h := newHistory(t, c, manyOperations)
	before := h.objects(t)
	for _, tc := range []struct {
		name  string
		fails func()
	}{
		{"full", func() { files.budget.set(0) }},
		{"unreachable", func() { files.unreachable = true }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.fails()
			err := h.store.Retain(t.Context(), "prod")
			var list diag.List
			if !errors.As(err, &list) || len(list) != 1 || list[0].ID != "archive-unavailable" || list[0].Hint == "" {
				t.Errorf("error %v, want one diagnostic", err)
			}
			if d := cmp.Diff(before, h.objects(t)); d != "" {
				t.Errorf("objects (-want +got):\n%s", d)
			}
		})
	}
	s := openStore(t, h.Config)
	files.reads.Store(0)
	ops, err := s.Operations().List(t.Context(), "prod")
	if err != nil || len(ops) != len(h.ids) {
		t.Errorf("%d operations, %v: want the objects", len(ops), err)
	}
	_, damaged, err := s.Operations().ListReadable(t.Context(), "prod")
	if err != nil || len(damaged) != 1 || damaged[0].ID != "archive-unavailable" {
		t.Errorf("problems %v, %v: want the archive", damaged, err)
	}
	if _, err := s.Operations().Find(t.Context(), h.ids[0][:len(h.ids[0])-2]); err != nil {
		t.Error(err)
	}
	if n := files.reads.Load(); n != 1 {
		t.Errorf("the archive was read %d times shortly after a failure", n)
	}
	files.unreachable = false
	files.budget.set(-1)
	requireNoError(t, h.store.Retain(t.Context(), "prod"))
	h.requireComplete(t)
	files.unreachable = true
	if got := eventsOf(t, openStore(t, h.Config), h.ids[len(h.ids)-1]); len(got) == 0 || len(got) >= len(h.events[h.ids[len(h.ids)-1]]) {
		t.Errorf("%d events without the archive, want those of the summary", len(got))
	}
}

func TestRetain_NeedsChoiceWithoutArchive(t *testing.T) {
	c := newConfig(t, faultproxy.New(t, server.Admin))
	h := newHistory(t, c, manyOperations)
	before := h.objects(t)
	requireNoError(t, h.store.Retain(t.Context(), "prod"))
	if d := cmp.Diff(before, h.objects(t)); d != "" {
		t.Errorf("objects without a choice (-want +got):\n%s", d)
	}
	h.WithoutArchive = true
	requireNoError(t, openStore(t, h.Config).Retain(t.Context(), "prod"))
	if d := cmp.Diff(strings.Split(fewObjects, ", "), h.objects(t)); d != "" {
		t.Errorf("objects (-want +got):\n%s", d)
	}
	if err := h.store.Retain(t.Context(), "../x"); !errors.Is(err, records.ErrInvalidName) {
		t.Errorf("an invalid name: %v", err)
	}
	// A later archive gets the summaries.
	c, _, _ = newArchived(t)
	h.Archive = c.Archive
	h.store = openStore(t, h.Config)
	newer := newHistory(t, h.Config, "apply:Succeeded apply:Succeeded")
	requireNoError(t, h.store.Retain(t.Context(), "prod"))
	ops, err := h.store.Operations().List(t.Context(), "prod")
	if err != nil || len(ops) != len(strings.Split(fewObjects, ", "))+len(newer.ids) {
		t.Errorf("%d operations, %v", len(ops), err)
	}
}

func TestRetain_LimitsArchive(t *testing.T) {
	c, _, _ := newArchived(t)
	c.ArchiveLimits = archive.Limits{Operations: 2}
	h := newHistory(t, c, manyOperations)
	requireNoError(t, h.store.Retain(t.Context(), "prod"))
	ops, err := h.store.Operations().List(t.Context(), "prod")
	if want := len(strings.Split(fewObjects, ", ")); err != nil || len(ops) != want {
		t.Errorf("%d operations, %v, want the %d objects, of which the archive has two", len(ops), err, want)
	}
}
