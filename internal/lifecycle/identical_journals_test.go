package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/recordstest"
)

// withoutTimes returns an event without its time and ids, and without the step that it has waited for,
// which depends on time.
func withoutTimes(e event.Event) event.Event {
	e.Seq, e.Time, e.Operation, e.After = 0, time.Time{}, "", ""
	return e
}

// comparableEvents returns the events of the latest operation by step, as "task@host", without
// times and ids. The order of steps and the step that another one has waited for depend on
// time, too.
func (w *world) comparableEvents() map[string][]event.Event {
	w.t.Helper()
	ops, err := w.records().Operations().List(w.t.Context(), "prod")
	if err != nil || len(ops) == 0 {
		w.t.Fatalf("operations %v, %v", ops, err)
	}
	out := map[string][]event.Event{}
	err = w.records().Journals().ReadEvents(w.t.Context(), ops[0].Name, func(e event.Event) error {
		e = withoutTimes(e)
		out[e.Task+"@"+e.Host] = append(out[e.Task+"@"+e.Host], e)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// TestCreate_WritesIdenticalJournals creates equal clusters whose records are kept by different
// backends.
func TestCreate_WritesIdenticalJournals(t *testing.T) {
	t.Parallel()
	files, memory := newWorld(t, "cp1", "w1"), newWorld(t, "cp1", "w1")
	m := recordstest.NewMemory(t)
	memory.open = func() records.Backend { return m.Open() }
	files.create(event.Succeeded)
	memory.create(event.Succeeded)
	want := files.comparableEvents()
	if len(want["kubeadm.init.preflight@cp1"]) == 0 || len(want["join.kubelet-start@w1"]) == 0 {
		t.Fatalf("important steps have no events: %v", want)
	}
	if d := cmp.Diff(want, memory.comparableEvents()); d != "" {
		t.Errorf("events (-in files +in memory):\n%s", d)
	}
}
