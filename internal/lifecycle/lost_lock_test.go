package lifecycle

import (
	"context"
	"errors"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/recordstest"
)

// A losingBackend loses the lock of cluster prod when a process is about to lock hosts.
type losingBackend struct {
	records.Backend
	lose func()
}

func (b losingBackend) Locks() records.Locks { return losingLocks{b.Backend.Locks(), b.lose} }

type losingLocks struct {
	records.Locks
	lose func()
}

func (l losingLocks) BeginHold(ctx context.Context, name string) (string, error) {
	l.lose()
	return l.Locks.BeginHold(ctx, name)
}

// TestApply_SavesNothingAfterLostLock loses the lock of the records at three points. The process must
// not save the start or the end of the operation: another process can have taken the lock.
func TestApply_SavesNothingAfterLostLock(t *testing.T) {
	count := newWorld(t, "cp1", "w1")
	count.create(event.Succeeded)
	steps := 0
	for _, e := range count.events {
		if e.Type == event.StepFinished {
			steps++
		}
	}
	for _, tc := range []struct {
		name string
		at   int // the step after which the lock is lost; 0: before the start
		want v1alpha1.OperationState
	}{
		{"before the start", 0, v1alpha1.OperationPending},
		{"during the run", steps / 2, v1alpha1.OperationRunning},
		{"after the last step", steps, v1alpha1.OperationRunning},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w, m := newWorld(t, "cp1", "w1"), recordstest.NewMemory(t)
			lose := func() { m.Lose("prod") }
			w.open = func() records.Backend {
				if tc.at == 0 {
					return losingBackend{m.Open(), lose}
				}
				return m.Open()
			}
			p := w.prepared(w.service().Prepare(t.Context(), creating(w.Manifest()), nil))
			finished := 0
			_, err := p.Apply(t.Context(), event.SinkFunc(func(e event.Event) {
				if e.Type == event.StepFinished {
					if finished++; finished == tc.at {
						lose()
					}
				}
			}))
			if !errors.Is(err, records.ErrLost) {
				t.Errorf("error %v, want %v", err, records.ErrLost)
			}
			w.open = func() records.Backend { return m.Open() }
			ops, err := w.records().Operations().List(t.Context(), "prod")
			if err != nil || len(ops) != 1 || ops[0].Status.State != tc.want {
				t.Fatalf("operations %v, %v; want one in state %s", ops, err, tc.want)
			}
			if _, err := w.records().Clusters().Load(t.Context(), "prod"); tc.at == 0 != errors.Is(err, records.ErrNotFound) {
				t.Errorf("the saved cluster: %v", err)
			}
			if tc.at == 0 {
				w.create(event.Succeeded)
			} else {
				w.resume(event.Succeeded)
			}
			w.whole()
		})
	}
}
