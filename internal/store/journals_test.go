package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records/sharedsync"
)

// openJournal opens the journal of a new operation.
func openJournal(tb testing.TB, dir string) *journalFile {
	tb.Helper()
	s, err := Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	o, err := s.Operations().Create(tb.Context(), time.Unix(0, 0), creation(), &plan.Plan{})
	if err != nil {
		tb.Fatal(err)
	}
	j, err := s.Journals().Open(tb.Context(), o.Name)
	if err != nil {
		tb.Fatal(err)
	}
	return j.(*journalFile)
}

func TestJournal_SharesOneSyncAmongCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := openJournal(t, t.TempDir())
		var syncs atomic.Int32
		first := make(chan struct{})
		j.sync = func(f *os.File) error {
			if syncs.Add(1) == 1 {
				<-first // the disk is busy
			}
			return f.Sync()
		}
		var callers sync.WaitGroup
		const hosts = 100
		for range hosts {
			callers.Go(func() {
				if err := errors.Join(j.Append(event.Event{Type: event.StepStarted}), j.Sync()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if j.writer.CountDurable() != 0 {
			t.Errorf("%d events are durable, and no sync has ended", j.writer.CountDurable())
		}
		close(first)
		callers.Wait()
		if n := syncs.Load(); n > 2 || j.writer.CountDurable() != hosts {
			t.Errorf("%d syncs, %d durable events", n, j.writer.CountDurable())
		}
		requireNoError(t, j.Close())
	})
}

func TestJournal_SyncsLaterIfNoCallerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := openJournal(t, t.TempDir())
		var syncs atomic.Int32
		j.sync = func(*os.File) error { syncs.Add(1); return nil }
		for range 3 {
			requireNoError(t, j.Append(event.Event{Type: event.Note}))
		}
		if n := syncs.Load(); n != 0 {
			t.Errorf("%d syncs: Append waits for the disk", n)
		}
		<-time.After(sharedsync.Delay)
		synctest.Wait()
		if n := syncs.Load(); n != 1 || j.writer.CountDurable() != 3 {
			t.Errorf("%d syncs, %d durable events", n, j.writer.CountDurable())
		}
		requireNoError(t, j.Sync())
		requireNoError(t, j.Close())
		if n := syncs.Load(); n != 1 {
			t.Errorf("%d syncs, although all events were durable", n)
		}
	})
}

func TestJournal_FailsAfterFailedSync(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		wait         func(*journalFile) error
	}{
		{"waiting", "the caller learns of it", (*journalFile).Sync},
		{"later", "the next event learns of it", func(j *journalFile) error {
			<-time.After(sharedsync.Delay)
			synctest.Wait()
			return j.Append(event.Event{Type: event.Note})
		}},
		{"at the end", "Close learns of it", (*journalFile).Close},
		{"later, and no event follows", "Close learns of it", func(j *journalFile) error {
			<-time.After(sharedsync.Delay)
			synctest.Wait()
			return j.Close()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := openJournal(t, t.TempDir())
				broken := errors.New("input/output error")
				j.sync = func(*os.File) error { return broken }
				requireNoError(t, j.Append(event.Event{Type: event.Note}))
				if err := tc.wait(j); !errors.Is(err, broken) {
					t.Errorf("%v: %s", err, tc.reason)
				}
				if err := j.Append(event.Event{Type: event.Note}); err == nil {
					t.Error("an event was added after a failed sync")
				}
				_ = j.Close() // it may be closed
			})
		})
	}
}

// BenchmarkJournal_ManyHosts records the start and the end of one step on 1,000 hosts at the
// same time.
func BenchmarkJournal_ManyHosts(b *testing.B) {
	const hosts = 1000
	j := openJournal(b, b.TempDir())
	var syncs atomic.Int64
	j.sync = func(f *os.File) error { syncs.Add(1); return f.Sync() }
	for b.Loop() {
		var all sync.WaitGroup
		for range hosts {
			all.Go(func() {
				for _, e := range []event.Event{{Type: event.StepStarted}, {Type: event.StepFinished, Outcome: event.Changed}} {
					if err := errors.Join(j.Append(e), j.Sync()); err != nil {
						b.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
	b.ReportMetric(float64(syncs.Load())/float64(b.N), "syncs/op")
	if err := j.Close(); err != nil {
		b.Error(err)
	}
}

// FuzzJournal reads a journal as a crash, a bad disk or a person may leave it. It reads
// the same events again after the torn end was removed and another event was added, as a
// resume does. The corpus is in
// testdata/fuzz/FuzzJournal.
func FuzzJournal(f *testing.F) {
	f.Add([]byte("{\"seq\":1}\n{\"se"))
	f.Fuzz(func(t *testing.T, data []byte) {
		read := func(data []byte) (end int64, seqs []int64, err error) {
			end, err = scanEvents(bytes.NewReader(data), "journal", func(e event.Event) error { seqs = append(seqs, e.Seq); return nil })
			return end, seqs, err
		}
		end, first, err := read(data)
		if end < 0 || end > int64(len(data)) || end > 0 && data[end-1] != '\n' {
			t.Fatalf("the last event ends at %d of %d bytes, and not with a line", end, len(data))
		}
		if err != nil {
			return // damage before a complete event is an error, and nothing is removed
		}
		added, err := json.Marshal(event.Event{Seq: 7, Type: event.Note, Message: "added"})
		if err != nil {
			t.Fatal(err)
		}
		again := append(bytes.Clone(data[:end]), append(added, '\n')...)
		to, second, err := read(again)
		if err != nil || to != int64(len(again)) || len(second) != len(first)+1 || second[len(first)] != 7 {
			t.Fatalf("%d events to %d of %d bytes (%v), want the %d from before and one more", len(second), to, len(again), err, len(first))
		}
		for i, seq := range first {
			if second[i] != seq {
				t.Fatalf("event %d has number %d, and had %d", i, second[i], seq)
			}
		}
	})
}
