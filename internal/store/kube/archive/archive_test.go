package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/backup/copies/copiestest"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/store/kube/archive"
)

var began = time.Date(2026, 11, 20, 18, 15, 2, 0, time.UTC)

// newRecord returns an operation of a day, with some events.
func newRecord(cluster string, day, events int) archive.Record {
	end := metav1.NewTime(began.AddDate(0, 0, day))
	o := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{
		Name: end.Format("20060102-150405") + "-apply-x7k2", Namespace: "clusters",
		UID: types.UID(fmt.Sprint("uid-", day)), ResourceVersion: "7", CreationTimestamp: metav1.NewTime(began),
	}}
	o.Spec = v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: cluster}, Kind: "apply"}
	o.Status = v1alpha1.OperationStatus{
		State: v1alpha1.OperationFailed, Reason: "Timeout", Message: "a host", ErrorCode: v1alpha1.ErrorUnreachable, EndTime: &end,
		Plan: &v1alpha1.PlanStatus{Digest: "sha256:1", Summary: "2 tasks"}, Hosts: []v1alpha1.OperationHost{{Name: "w1"}},
	}
	p := &plan.Plan{Cluster: cluster, Digest: "sha256:1"}
	return archive.Record{Operation: o, Plan: p, Events: func(fn func(event.Event) error) error {
		for seq := range int64(events) {
			e := event.Event{Seq: seq + 1, Time: began, Type: event.Note, Message: strings.Repeat("output <\u2028> ", 20)}
			if err := fn(e); err != nil {
				return err
			}
		}
		return nil
	}}
}

// eventsOf returns all events that a function reads.
func eventsOf(t *testing.T, read func(func(event.Event) error) error) (out []event.Event) {
	t.Helper()
	requireNoError(t, read(func(e event.Event) error { out = append(out, e); return nil }))
	return out
}

func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openDirectory(t *testing.T) (*archive.Directory, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "archive")
	d, err := archive.OpenDirectory(t.Context(), path)
	requireNoError(t, err)
	t.Cleanup(func() { requireNoError(t, d.Close()) })
	return d, path
}

func openStorage(t *testing.T, s *copiestest.Storage) archive.Files {
	t.Helper()
	to, err := copies.OpenObjects(s.To, copies.S3Login{AccessKey: s.AccessKey, SecretKey: s.SecretKey, Authorities: s.Authority})
	requireNoError(t, err)
	t.Cleanup(func() { requireNoError(t, to.Close()) })
	return to
}

func newArchive(t *testing.T, files archive.Files) *archive.Archive {
	t.Helper()
	a, err := archive.New(files, "clusters")
	requireNoError(t, err)
	return a
}

// fileOf returns the path of the only file of an operation.
func fileOf(t *testing.T, dir string, r archive.Record) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "clusters_*_"+r.Operation.Name+"_"+string(r.Operation.UID)+"_*.zst"))
	requireNoError(t, err)
	if len(found) != 1 {
		t.Fatalf("files of operation %s: %v", r.Operation.Name, found)
	}
	return found[0]
}

func listNames(t *testing.T, a *archive.Archive, cluster string) (names []string) {
	t.Helper()
	lines, damaged, err := a.List(t.Context(), cluster)
	requireNoError(t, err)
	if len(damaged) > 0 {
		t.Errorf("damaged: %v", damaged)
	}
	for _, l := range lines {
		names = append(names, l.Operation.Name)
	}
	slices.Sort(names)
	return names
}

func TestArchive_ReturnsWhatWasPut(t *testing.T) {
	for name, open := range map[string]func(*testing.T) archive.Files{
		"directory": func(t *testing.T) archive.Files { d, _ := openDirectory(t); return d },
		"S3":        func(t *testing.T) archive.Files { return openStorage(t, copiestest.ListenS3(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			files := open(t)
			a := newArchive(t, files)
			first, second, other := newRecord("prod", 0, 3), newRecord("prod", 1, 0), newRecord("prod-2", 2, 500)
			for _, r := range []archive.Record{first, second, other} {
				requireNoError(t, a.Put(t.Context(), r))
			}
			again := newArchive(t, files)
			if d := cmp.Diff([]string{first.Operation.Name, second.Operation.Name}, listNames(t, again, "prod")); d != "" {
				t.Errorf("operations of prod (-want +got):\n%s", d)
			}
			if got := listNames(t, again, ""); len(got) != 3 {
				t.Errorf("operations of all clusters: %v", got)
			}
			lines, _, err := again.List(t.Context(), "prod-2")
			requireNoError(t, err)
			want := other.Operation.DeepCopy()
			want.ResourceVersion = ""
			o, p, err := again.Load(t.Context(), other.Operation.Name, "")
			requireNoError(t, err)
			if d := cmp.Diff(want, o); d != "" {
				t.Errorf("operation (-want +got):\n%s", d)
			}
			want.Status.Hosts = nil
			if d := cmp.Diff(*want, lines[0].Operation); d != "" {
				t.Errorf("operation in the index (-want +got):\n%s", d)
			}
			if d := cmp.Diff(other.Plan, p); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
			read := func(fn func(event.Event) error) error {
				return again.ReadEvents(t.Context(), other.Operation.Name, "", fn)
			}
			if d := cmp.Diff(eventsOf(t, other.Events), eventsOf(t, read)); d != "" {
				t.Errorf("events (-want +got):\n%s", d)
			}
			ids, err := again.Find(t.Context(), "20261121")
			if d := cmp.Diff([]string{second.Operation.Name}, ids); d != "" || err != nil {
				t.Errorf("found (-want +got):\n%s%v", d, err)
			}
			stop := errors.New("stop")
			if err := again.ReadEvents(t.Context(), other.Operation.Name, "", func(event.Event) error { return stop }); !errors.Is(err, stop) {
				t.Errorf("reading with a failing function: %v", err)
			}
			if _, _, err := again.Load(t.Context(), "20261120", ""); !errors.Is(err, records.ErrNotFound) {
				t.Errorf("loading an unknown operation: %v", err)
			}
			foreign, err := archive.New(files, "clusters-2")
			requireNoError(t, err)
			if got := listNames(t, foreign, ""); len(got) != 0 {
				t.Errorf("operations of another namespace: %v", got)
			}
		})
	}
}

// errCrash is the error of a write after a crash.
var errCrash = errors.New("the program has ended")

// crashing are files whose writer crashes before or after a number of writes.
type crashing struct {
	archive.Files
	left  int
	after bool // the last write is complete, but its writer does not learn that
}

func (c *crashing) write(do func() error) error {
	c.left--
	switch {
	case c.left < 0 || c.left == 0 && !c.after:
		return errCrash
	case c.left == 0:
		return errors.Join(do(), errCrash)
	}
	return do()
}

func (c *crashing) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	return c.write(func() error { return c.Files.Put(ctx, name, write) })
}

func (c *crashing) Remove(ctx context.Context, name string) error {
	return c.write(func() error { return c.Files.Remove(ctx, name) })
}

// TestArchive_RepairsIndexAfterCrash crashes in each write of a Put and of a Prune.
func TestArchive_RepairsIndexAfterCrash(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		writes       int
		after        bool
		put, pruned  int // operations after the crash
	}{
		{"before the first", "nothing happened", 1, false, 2, 3},
		{"after the first", "the file counts", 1, true, 3, 2},
		{"before the second", "the file counts", 2, false, 3, 2},
		{"after the second", "both are complete", 2, true, 3, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files, _ := openDirectory(t)
			a := newArchive(t, files)
			requireNoError(t, a.Put(t.Context(), newRecord("prod", 0, 3)))
			requireNoError(t, a.Put(t.Context(), newRecord("prod", 1, 3)))
			crash := newArchive(t, &crashing{files, tc.writes, tc.after})
			if err := crash.Put(t.Context(), newRecord("prod", 2, 3)); !archive.IsUnavailable(err) {
				t.Errorf("Put: %v, want a diagnostic", err)
			}
			if got := listNames(t, a, "prod"); len(got) != tc.put {
				t.Errorf("after Put: %v, want %d operations: %s", got, tc.put, tc.reason)
			}
			requireNoError(t, a.Put(t.Context(), newRecord("prod", 2, 3)))
			if got := listNames(t, a, "prod"); len(got) != 3 {
				t.Errorf("after another Put: %v", got)
			}
			crash = newArchive(t, &crashing{files, tc.writes, tc.after})
			if err := crash.Prune(t.Context(), []string{"prod"}, archive.Limits{Operations: 1}, began); !archive.IsUnavailable(err) {
				t.Errorf("Prune: %v, want a diagnostic", err)
			}
			if got := listNames(t, a, "prod"); len(got) != tc.pruned {
				t.Errorf("after Prune: %v, want %d operations", got, tc.pruned)
			}
			requireNoError(t, a.Prune(t.Context(), []string{"prod"}, archive.Limits{Operations: 1}, began))
			if got := listNames(t, a, "prod"); len(got) != 1 {
				t.Errorf("after another Prune: %v", got)
			}
		})
	}
}

func TestArchive_ListsOperationsOfAllWriters(t *testing.T) {
	files, path := openDirectory(t)
	const writers = 16
	var all sync.WaitGroup
	for day := range writers {
		all.Go(func() {
			if err := newArchive(t, files).Put(t.Context(), newRecord("prod", day, 10)); err != nil {
				t.Error(err)
			}
			if err := newArchive(t, files).Put(t.Context(), newRecord("prod", 99, 10)); err != nil { // the same by all
				t.Error(err)
			}
		})
	}
	all.Wait()
	a := newArchive(t, files)
	if got := listNames(t, a, "prod"); len(got) != writers+1 {
		t.Errorf("%d operations: %v", len(got), got)
	}
	info, err := os.Stat(filepath.Join(path, "clusters_prod_index.zst"))
	requireNoError(t, err)
	requireNoError(t, os.Chtimes(filepath.Join(path, "clusters_prod_index.zst"), began, began))
	if got := listNames(t, a, "prod"); len(got) != writers+1 || info.Size() == 0 {
		t.Errorf("%d operations: %v", len(got), got)
	}
	info, err = os.Stat(filepath.Join(path, "clusters_prod_index.zst"))
	requireNoError(t, err)
	if !info.ModTime().Equal(began) {
		t.Error("a list writes a repaired index again")
	}
}

// TestPut_KeepsMoreCompleteFile archives an operation again after its journal was shortened.
func TestPut_KeepsMoreCompleteFile(t *testing.T) {
	files, _ := openDirectory(t)
	a := newArchive(t, files)
	for _, tc := range []struct {
		name, reason string
		events, want int
	}{
		{"first", "it is new", 3, 3},
		{"shortened", "the file has more events", 1, 3},
		{"more complete", "the first journal was a summary", 7, 7},
	} {
		requireNoError(t, a.Put(t.Context(), newRecord("prod", 0, tc.events)))
		read := func(fn func(event.Event) error) error {
			return a.ReadEvents(t.Context(), newRecord("prod", 0, 0).Operation.Name, "", fn)
		}
		if got := eventsOf(t, read); len(got) != tc.want {
			t.Errorf("%s: %d events, want %d: %s", tc.name, len(got), tc.want, tc.reason)
		}
	}
}

func TestPrune_RemovesOldestBeyondLimits(t *testing.T) {
	files, path := openDirectory(t)
	a := newArchive(t, files)
	for _, tc := range []struct {
		name, reason string
		limits       archive.Limits
		want         []int // days
	}{
		{"none", "no limit is exceeded", archive.Limits{}, []int{0, 1, 2, 3}},
		{"number", "the newest remain", archive.Limits{Operations: 3}, []int{1, 2, 3}},
		{"age", "the end counts, by the clock of the caller", archive.Limits{Age: 50 * time.Hour}, []int{2, 3}},
		{"size", "less than the newest fits", archive.Limits{Bytes: 1}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var want []string
			for day := range 4 {
				requireNoError(t, a.Put(t.Context(), newRecord("prod", day, 3)))
				if slices.Contains(tc.want, day) {
					want = append(want, newRecord("prod", day, 3).Operation.Name)
				}
			}
			requireNoError(t, a.Put(t.Context(), newRecord("prod-2", 0, 3)))
			requireNoError(t, a.Prune(t.Context(), []string{"prod"}, tc.limits, began.AddDate(0, 0, 4)))
			if d := cmp.Diff(want, listNames(t, a, "prod")); d != "" {
				t.Errorf("operations (-want +got):\n%s%s", d, tc.reason)
			}
			if got := listNames(t, a, "prod-2"); len(got) != 1 {
				t.Errorf("operations of another cluster: %v", got)
			}
		})
	}
	old, young := filepath.Join(path, ".clusters_prod_x_u_w.zst.A.part"), filepath.Join(path, ".clusters_prod_y_u_w.zst.A.part")
	for _, file := range []string{old, young} {
		requireNoError(t, os.WriteFile(file, nil, 0o600))
	}
	requireNoError(t, os.Chtimes(old, began, began))
	requireNoError(t, a.Prune(t.Context(), []string{"prod"}, archive.Limits{}, time.Now()))
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an incomplete file of a crash remains: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("an incomplete file of another writer: %v", err)
	}
}

func packed(t *testing.T, text string) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	requireNoError(t, err)
	return z.EncodeAll([]byte(text), nil)
}

// TestArchive_ReportsDamagedFile requires a diagnostic with the name, and that other files can be read.
func TestArchive_ReportsDamagedFile(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		damage       func(t *testing.T, text []byte) []byte
		inEvents     bool // a list does not see it
	}{
		{"empty", "there is no header", func(*testing.T, []byte) []byte { return nil }, false},
		{"other content", "it was not made by this program", func(*testing.T, []byte) []byte { return []byte("canary") }, false},
		{"other text", "it has no digest", func(t *testing.T, _ []byte) []byte { return packed(t, "canary\ncanary\n") }, false},
		{
			"other header", "the digest is of the first one",
			func(t *testing.T, _ []byte) []byte {
				return packed(t, "slipway-operation sha256:"+strings.Repeat("0", 64)+"\n{\"format\":1}\n")
			}, false,
		},
		{"long line", "its memory has a limit", func(t *testing.T, _ []byte) []byte { return packed(t, strings.Repeat("x", 1<<20)) }, false},
		{"end missing", "events are missing", func(_ *testing.T, text []byte) []byte { return text[:len(text)-40] }, true},
		{"more", "it is longer than its header says", func(t *testing.T, text []byte) []byte { return append(text, packed(t, "{}\n")...) }, true},
		{"flipped bit", "the checksum is another one", func(_ *testing.T, text []byte) []byte { text[len(text)-1] ^= 1; return text }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files, path := openDirectory(t)
			a := newArchive(t, files)
			bad, good := newRecord("prod", 0, 2000), newRecord("prod", 1, 3)
			requireNoError(t, a.Put(t.Context(), bad))
			requireNoError(t, a.Put(t.Context(), good))
			file := fileOf(t, path, bad)
			text, err := os.ReadFile(file)
			requireNoError(t, err)
			requireNoError(t, os.WriteFile(file, tc.damage(t, text), 0o600))

			err = a.ReadEvents(t.Context(), bad.Operation.Name, "", func(event.Event) error { return nil })
			var list diag.List
			if !errors.As(err, &list) || list[0].ID != "archive-damaged" || list[0].Hint == "" {
				t.Errorf("reading: %v, want a diagnostic: %s", err, tc.reason)
			}
			lines, damaged, err := a.List(t.Context(), "prod")
			want := 1
			if tc.inEvents {
				want = 2
			}
			if err != nil || len(lines) != want || len(damaged) != 2-want {
				t.Errorf("list: %d lines, %v, %v", len(lines), damaged, err)
			}
		})
	}
}

// TestArchive_RefusesFileOfOtherOperation renames a file.
func TestArchive_RefusesFileOfOtherOperation(t *testing.T) {
	files, path := openDirectory(t)
	a := newArchive(t, files)
	r := newRecord("prod", 0, 3)
	requireNoError(t, a.Put(t.Context(), r))
	file := fileOf(t, path, r)
	requireNoError(t, os.Rename(file, strings.Replace(file, "clusters_prod_", "clusters_lab_", 1)))
	if lines, damaged, err := a.List(t.Context(), "lab"); err != nil || len(lines) != 0 || len(damaged) != 1 {
		t.Errorf("list: %v, %v, %v", lines, damaged, err)
	}
}

func TestArchive_MakesDamagedIndexAgain(t *testing.T) {
	var bomb bytes.Buffer
	z, err := zstd.NewWriter(&bomb)
	requireNoError(t, err)
	for range 80 {
		_, err = z.Write(make([]byte, 1<<20))
		requireNoError(t, err)
	}
	requireNoError(t, z.Close())
	for name, text := range map[string][]byte{
		"empty": nil, "other content": []byte("canary"), "no lines": packed(t, "canary\n"), "too large": bomb.Bytes(),
		"lines of missing files": packed(t, `{"operation":{"metadata":{"name":"gone"}},"file":"gone"}`+"\n"),
	} {
		t.Run(name, func(t *testing.T) {
			files, path := openDirectory(t)
			a := newArchive(t, files)
			r := newRecord("prod", 0, 3)
			requireNoError(t, a.Put(t.Context(), r))
			requireNoError(t, os.WriteFile(filepath.Join(path, "clusters_prod_index.zst"), text, 0o600))
			if d := cmp.Diff([]string{r.Operation.Name}, listNames(t, a, "prod")); d != "" {
				t.Errorf("operations (-want +got):\n%s", d)
			}
		})
	}
}

func TestArchive_RefusesInvalidNames(t *testing.T) {
	files, path := openDirectory(t)
	a := newArchive(t, files)
	for _, name := range []string{"", "..", "../x", "a/b", "a_b", ".hidden", "a.b", "A", strings.Repeat("a", 64), "a\x00"} {
		r := newRecord("prod", 0, 3)
		r.Operation.Name = name
		if err := a.Put(t.Context(), r); !errors.Is(err, records.ErrInvalidName) {
			t.Errorf("operation %q: %v", name, err)
		}
		if err := a.Put(t.Context(), newRecord(name, 0, 3)); !errors.Is(err, records.ErrInvalidName) {
			t.Errorf("cluster %q: %v", name, err)
		}
		if _, err := archive.New(files, name); !errors.Is(err, records.ErrInvalidName) {
			t.Errorf("namespace %q: %v", name, err)
		}
		if name != "" {
			if _, _, err := a.List(t.Context(), name); !errors.Is(err, records.ErrInvalidName) {
				t.Errorf("list of cluster %q: %v", name, err)
			}
		}
	}
	entries, err := os.ReadDir(path)
	if err != nil || len(entries) > 0 {
		t.Errorf("files: %v, %v", entries, err)
	}
}

func TestDirectory_IsPrivate(t *testing.T) {
	files, path := openDirectory(t)
	a := newArchive(t, files)
	requireNoError(t, a.Put(t.Context(), newRecord("prod", 0, 3)))
	entries, err := os.ReadDir(path)
	requireNoError(t, err)
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s has mode %v, %v", e.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 || len(entries) != 2 {
		t.Errorf("the directory has mode %v and %d files, %v", info.Mode(), len(entries), err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	requireNoError(t, os.WriteFile(outside, []byte("canary"), 0o600))
	requireNoError(t, os.Symlink(outside, filepath.Join(path, "clusters_prod_x_u_w.zst")))
	if err := files.Fetch(t.Context(), "clusters_prod_x_u_w.zst", io.Discard); err == nil {
		t.Error("a link was followed")
	}
	if got := listNames(t, a, "prod"); len(got) != 1 {
		t.Errorf("a link is listed: %v", got)
	}
	requireNoError(t, os.Chmod(path, 0o750))
	for name, path := range map[string]string{"open to a group": path, "no parent": filepath.Join(path, "a", "b"), "a file": outside} {
		if _, err := archive.OpenDirectory(t.Context(), path); !archive.IsUnavailable(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
