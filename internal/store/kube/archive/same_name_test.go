package archive_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/internal/backup/copies/copiestest"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/store/kube/archive"
)

// newSameName returns a later operation with the name of the operation of day 0.
func newSameName(uid types.UID, events int) archive.Record {
	r, later := newRecord("prod", 0, events), metav1.NewTime(began.Add(time.Hour))
	r.Operation.UID, r.Operation.CreationTimestamp, r.Operation.Status.EndTime = uid, later, &later
	r.Plan.Digest = "sha256:" + string(uid)
	return r
}

// TestArchive_DistinguishesOperationsOfSameName archives the operation of a deleted cluster, and one of the
// cluster that was created again under its name.
func TestArchive_DistinguishesOperationsOfSameName(t *testing.T) {
	files, _ := openDirectory(t)
	a := newArchive(t, files)
	older, newer := newRecord("prod", 0, 3), newSameName("a-later", 7)
	requireNoError(t, a.Put(t.Context(), newer))
	requireNoError(t, a.Put(t.Context(), older))
	id := older.Operation.Name
	for _, tc := range []struct {
		name, reason string
		id           string
		uid          types.UID
		want         archive.Record
	}{
		{"older", "its UID selects it", id, "uid-0", older},
		{"newer", "its UID selects it", id, "a-later", newer},
		{"name only", "the newest counts", id, "", newer},
		{"UID as id", "a user can read the older one", "uid-0", "", older},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, p, err := a.Load(t.Context(), tc.id, tc.uid)
			if err != nil || o.UID != tc.want.Operation.UID || p.Digest != tc.want.Plan.Digest {
				t.Errorf("operation %v with plan %v, %v: %s", o, p, err, tc.reason)
			}
			read := func(fn func(event.Event) error) error { return a.ReadEvents(t.Context(), tc.id, tc.uid, fn) }
			if d := cmp.Diff(eventsOf(t, tc.want.Events), eventsOf(t, read)); d != "" {
				t.Errorf("events (-want +got):\n%s%s", d, tc.reason)
			}
		})
	}
	if _, _, err := a.Load(t.Context(), id, "another"); !errors.Is(err, records.ErrNotFound) {
		t.Errorf("another UID: %v", err)
	}
	if got := listNames(t, a, "prod"); len(got) != 2 {
		t.Errorf("operations in the index: %v", got)
	}
	if ids, err := a.Find(t.Context(), id); err != nil || len(ids) != 1 {
		t.Errorf("found %v, %v: it is one name", ids, err)
	}
	requireNoError(t, a.Prune(t.Context(), []string{"prod"}, archive.Limits{Operations: 1}, began))
	if _, _, err := a.Load(t.Context(), id, "a-later"); err != nil {
		t.Errorf("the newer operation after Prune: %v", err)
	}
	if _, _, err := a.Load(t.Context(), id, "uid-0"); !errors.Is(err, records.ErrNotFound) {
		t.Errorf("the older operation after Prune: %v", err)
	}
}

// deaf are files of which a number of reads of operations fail.
type deaf struct {
	archive.Files
	mu   sync.Mutex
	left int
}

func (d *deaf) Fetch(ctx context.Context, name string, to io.Writer) error {
	if strings.HasSuffix(name, "_index.zst") {
		return d.Files.Fetch(ctx, name, to)
	}
	d.mu.Lock()
	d.left--
	fails := d.left >= 0
	d.mu.Unlock()
	if fails {
		return errCrash
	}
	return d.Files.Fetch(ctx, name, to)
}

// TestPut_NeverRemovesFileOfOtherWriter makes a writer fail to read its file after another one has
// relied on it.
func TestPut_NeverRemovesFileOfOtherWriter(t *testing.T) {
	storage := copiestest.ListenS3(t)
	files := openStorage(t, storage)
	r := newRecord("prod", 0, 30)
	failing := &deaf{Files: files, left: 1}
	if err := newArchive(t, failing).Put(t.Context(), r); !archive.IsUnavailable(err) {
		t.Fatalf("Put without a read: %v", err)
	}
	requireNoError(t, newArchive(t, files).Put(t.Context(), r))
	failing.left = 1
	if err := newArchive(t, failing).Put(t.Context(), r); !archive.IsUnavailable(err) {
		t.Fatalf("Put without a read: %v", err)
	}
	read := func(fn func(event.Event) error) error {
		return newArchive(t, files).ReadEvents(t.Context(), r.Operation.Name, r.Operation.UID, fn)
	}
	if d := cmp.Diff(eventsOf(t, r.Events), eventsOf(t, read)); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	storage.Truncates.Store(true) // a file of another operation, which is damaged
	other := newRecord("prod", 1, 30)
	if err := newArchive(t, files).Put(t.Context(), other); err == nil {
		t.Error("Put succeeded, but the storage has lost a byte")
	}
	storage.Truncates.Store(false)
	requireNoError(t, newArchive(t, files).Put(t.Context(), other))
	read = func(fn func(event.Event) error) error {
		return newArchive(t, files).ReadEvents(t.Context(), other.Operation.Name, "", fn)
	}
	if d := cmp.Diff(eventsOf(t, other.Events), eventsOf(t, read)); d != "" {
		t.Errorf("events of the operation with a damaged and a complete file (-want +got):\n%s", d)
	}
	if got := listNames(t, newArchive(t, files), "prod"); len(got) != 2 {
		t.Errorf("operations: %v, want each once", got)
	}
}

// TestPrune_RemovesSupersededFilesLater has two complete files of an operation, and a damaged one.
func TestPrune_RemovesSupersededFilesLater(t *testing.T) {
	files, path := openDirectory(t)
	a, r := newArchive(t, files), newRecord("prod", 0, 30)
	requireNoError(t, a.Put(t.Context(), r))
	file := fileOf(t, path, r)
	text, err := os.ReadFile(file)
	requireNoError(t, err)
	second := file[:strings.LastIndexByte(file, '_')] + "_zzzzzz.zst"
	damaged := file[:strings.LastIndexByte(file, '_')] + "_000000.zst"
	requireNoError(t, os.WriteFile(second, text, 0o600))
	requireNoError(t, os.WriteFile(damaged, text[:len(text)-9], 0o600))
	count := func() int {
		found, err := filepath.Glob(filepath.Join(path, "*_uid-0_*"))
		requireNoError(t, err)
		return len(found)
	}
	requireNoError(t, a.Prune(t.Context(), []string{"prod"}, archive.Limits{}, time.Now()))
	if n := count(); n != 3 {
		t.Errorf("%d files, want all: another process may have verified one", n)
	}
	requireNoError(t, a.Prune(t.Context(), []string{"prod"}, archive.Limits{}, time.Now().Add(48*time.Hour)))
	if _, err := os.Stat(file); err != nil || count() != 1 {
		t.Errorf("%d files, %v, want the first complete one", count(), err)
	}
	read := func(fn func(event.Event) error) error { return a.ReadEvents(t.Context(), r.Operation.Name, "", fn) }
	if d := cmp.Diff(eventsOf(t, r.Events), eventsOf(t, read)); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}
