//go:build apiserver

package lifecycle

import (
	"cmp"
	"context"
	"io"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/store/kube"
	"slipway.dev/slipway/internal/store/kube/archive"
)

// archiveFiles are the files of an archive whose calls can fail.
type archiveFiles struct {
	archive.Files
	list, put func(context.Context) error // nil for no error
}

func (f *archiveFiles) List(ctx context.Context, prefix string) ([]copies.File, error) {
	if f.list != nil {
		return nil, f.list(ctx)
	}
	return f.Files.List(ctx, prefix)
}

func (f *archiveFiles) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if f.put != nil {
		return f.put(ctx)
	}
	return f.Files.Put(ctx, name, write)
}

// withArchive keeps the records of a world in the API, with an archive. objects returns the ids of the
// operations that are objects.
func (w *world) withArchive(t *testing.T) (files *archiveFiles, objects func() []string) {
	t.Helper()
	d, err := archive.OpenDirectory(t.Context(), filepath.Join(t.TempDir(), "archive"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	files = &archiveFiles{Files: d}
	var used archive.Files = files
	open := inAPIWith(t, func(c *kube.Config) { c.Archive = used })
	w.open = func() records.Backend {
		b, kill := open()
		t.Cleanup(kill)
		return b
	}
	return files, func() (ids []string) {
		t.Helper()
		used = nil
		defer func() { used = files }()
		ops, err := w.records().Operations().List(t.Context(), "prod")
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range ops {
			ids = append(ids, o.Name)
		}
		return ids
	}
}

// applyPods changes a setting of all kubelets, and returns the warnings.
func (w *world) applyPods(number int) (warnings diag.List) {
	w.t.Helper()
	c := w.Manifest()
	c.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": float64(number)}
	s := w.service()
	s.View.Warn = func(l diag.List) { warnings = append(warnings, l...) }
	w.apply(w.prepared(s.Prepare(w.t.Context(), applying(c), nil)), event.Succeeded)
	return warnings
}

// wantReadable checks that the events and the plan of an operation can be read.
func (w *world) wantReadable(o v1alpha1.Operation) {
	w.t.Helper()
	s := w.service()
	for _, follow := range []bool{false, true} {
		var events []event.Event
		err := s.Events(w.t.Context(), o.Name, follow, func(e event.Event) error { events = append(events, e); return nil })
		if err != nil || len(events) < 10 || events[0].Type != event.OperationStarted ||
			events[len(events)-1].Type != event.OperationFinished {
			w.t.Errorf("%d events of operation %s, %v, want all", len(events), o.Name, err)
		}
		for i, e := range events {
			if e.Seq != int64(i+1) {
				w.t.Fatalf("event %d of operation %s has number %d: the journal is not complete", i+1, o.Name, e.Seq)
			}
		}
	}
	p, err := s.Records.Operations().LoadPlan(w.t.Context(), o.Name)
	if err != nil || p.Digest != o.Status.Plan.Digest || len(p.Steps) == 0 {
		w.t.Errorf("the plan of operation %s: %v, %v", o.Name, p, err)
	}
	if c, err := s.Records.Operations().LoadPlannedCluster(w.t.Context(), o.Name); err != nil || c.Name != "prod" {
		w.t.Errorf("the planned cluster of operation %s: %v, %v", o.Name, c, err)
	}
}

// TestOperations_StayReadableInArchiveAPI carries out more operations than remain objects. All calls
// return the archived ones too, and an archive that fails stops no operation.
func TestOperations_StayReadableInArchiveAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	files, objects := w.withArchive(t)
	w.create(event.Succeeded)
	const applies = 7
	for i := range applies {
		if warnings := w.applyPods(50 + i); len(warnings) > 0 {
			t.Errorf("warnings %v", warnings)
		}
	}
	listed := func() []v1alpha1.Operation {
		ops, err := w.service().Operations(t.Context(), "prod")
		if err != nil || !slices.IsSortedFunc(ops, func(a, b v1alpha1.Operation) int { return cmp.Compare(b.Name, a.Name) }) {
			t.Fatalf("operations %v, %v, want the newest first", ops, err)
		}
		return ops
	}
	ops, kept := listed(), objects()
	if len(ops) != applies+1 || len(kept) >= len(ops) || len(kept) < 5 {
		t.Errorf("%d operations, of which %d are objects", len(ops), len(kept))
	}
	for _, o := range ops {
		w.wantReadable(o)
	}
	for i, tc := range []struct {
		name, reason string
		list, put    func(context.Context) error
		more         int // objects
	}{
		{"full", "an archived operation leaves the API", nil, func(context.Context) error { return syscall.ENOSPC }, 0},
		{"unreachable", "no archived operation can be verified", func(context.Context) error { return syscall.EHOSTUNREACH }, nil, 1},
		{"hung", "no archived operation can be verified", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, nil, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w.useT(t)
			files.list, files.put = tc.list, tc.put
			warnings := w.applyPods(100 + i)
			if len(warnings) != 1 || warnings[0].ID != "archive-unavailable" || warnings[0].Severity != diag.Warning {
				t.Errorf("warnings %v, want one of the archive", warnings)
			}
			ids := objects()
			if len(ids) != len(kept)+tc.more {
				t.Errorf("%d operations are objects, want %d: %s", len(ids), len(kept)+tc.more, tc.reason)
			}
			o, err := w.records().Operations().Load(t.Context(), ids[0])
			if err != nil {
				t.Fatal(err)
			}
			w.wantReadable(*o) // its journal is complete in the API
		})
	}
	w.useT(t)
	files.list, files.put = nil, nil
	if warnings := w.applyPods(200); len(warnings) > 0 {
		t.Errorf("warnings %v after the end of the fault", warnings)
	}
	if ops = listed(); len(ops) != applies+5 || len(objects()) != len(kept) {
		t.Errorf("%d operations, of which %d are objects, want %d", len(ops), len(objects()), len(kept))
	}
	for _, o := range ops {
		w.wantReadable(o)
	}
}
