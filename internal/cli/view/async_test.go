package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/event"
)

func fixedNow() time.Time { return epoch }

// TestQueue_ShowsTheSameAsTheView: the view shows the same with a queue as without it.
func TestQueue_ShowsTheSameAsTheView(t *testing.T) {
	p, events := newDemoOperation()
	for _, tc := range []struct {
		name string
		view func(io.Writer) View
	}{
		{"plain", func(w io.Writer) View { return NewPlain(w, Options{Plan: p, Now: fixedNow}) }},
		{"record", func(w io.Writer) View { return NewEventView(w, io.Discard, JSON) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var direct, queued strings.Builder
			v, q := tc.view(&direct), NewQueue(tc.view(&queued), fixedNow)
			for i, e := range events {
				v.Emit(e)
				q.Emit(e)
				if i%5 == 0 {
					fmt.Fprintf(v, "log line %d\n", i)
					fmt.Fprintf(q, "log line %d\n", i)
				}
			}
			if data, talk := q.Drain(t.Context()); !data || !talk {
				t.Error("Drain reports that the reader stopped")
			}
			if d := cmp.Diff(direct.String(), queued.String()); d != "" {
				t.Errorf("(-direct +queued):\n%s", d)
			}
		})
	}
}

func TestQueue_ListsRunningStepsWithoutReader(t *testing.T) {
	r, w := io.Pipe() // there is no reader
	defer r.Close()
	_, events := newDemoOperation()
	q := NewQueue(NewEventView(w, io.Discard, JSON), fixedNow)
	for _, e := range events[:9] {
		q.Emit(e)
	}
	if d := cmp.Diff([]string{"set up the kernel on w2"}, q.RunningSteps()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// readSlowly reads a line from time to time, and stops after some lines.
func readSlowly(r io.Reader, lines int) {
	for range lines {
		time.Sleep(drainPatience / 2)
		b := make([]byte, 1)
		for b[0] != '\n' {
			if _, err := r.Read(b); err != nil {
				return
			}
		}
	}
}

func TestQueue_DrainsUntilReaderStops(t *testing.T) {
	interrupt := errors.New("interrupted")
	for _, tc := range []struct {
		name, reason string
		reads        int // lines of 40
		interrupted  bool
		want         bool
	}{
		{"a slow reader", "the queue waits for it", 40, false, true},
		{"a slow reader, after Ctrl-C", "the queue waits while it reads", 40, true, true},
		{"a reader that stops, after Ctrl-C", "the queue stops waiting", 5, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := io.Pipe()
				q := NewQueue(NewEventView(w, io.Discard, JSON), fixedNow)
				for range 40 {
					q.Emit(event.Event{Type: event.Note}) // returns without waiting for a reader
				}
				go readSlowly(r, tc.reads)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if tc.interrupted {
					cancel(interrupt)
				}
				if data, talk := q.Drain(ctx); data != tc.want || !talk {
					t.Errorf("data read: %t, want %t: %s; talk read: %t", data, tc.want, tc.reason, talk)
				}
				r.Close() // ends the writer
			})
		})
	}
}

func TestQueue_DropsEventsOfSlowReader(t *testing.T) {
	r, w := io.Pipe()
	q := NewQueue(NewEventView(w, io.Discard, JSON), fixedNow)
	q.limit = 3
	first := event.Event{Seq: 1, Type: event.OperationStarted}
	q.Emit(first)
	var got strings.Builder
	b := make([]byte, 1)
	_, _ = r.Read(b) // the first is being written, and no longer waits in the queue
	got.Write(b)
	for i := range 10 {
		q.Emit(event.Event{Seq: int64(i + 2), Type: event.Note, Operation: "op-1"})
	}
	q.Emit(event.Event{Seq: 12, Type: event.OperationFinished, Operation: "op-1"})
	read := make(chan error)
	go func() {
		_, err := io.Copy(&got, r)
		read <- err
	}()
	q.Drain(t.Context())
	if err := errors.Join(w.Close(), <-read); err != nil {
		t.Fatal(err)
	}
	var seq []string
	for l := range strings.Lines(got.String()) {
		number, _, _ := strings.Cut(strings.TrimPrefix(l, `{"seq":`), ",")
		seq = append(seq, number)
	}
	want := []string{"1", "2", "3", "4", "0", "12"} // 0: the note, which is not in the journal
	if d := cmp.Diff(want, seq); d != "" || !strings.Contains(got.String(), "7 events omitted") ||
		!strings.Contains(got.String(), "slipway operations logs op-1") {
		t.Errorf("events shown (-want +got):\n%s\n%s", d, got.String())
	}
}
