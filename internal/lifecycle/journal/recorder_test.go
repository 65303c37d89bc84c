package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/event"
)

// events is a journal and a sink for events.
type events []event.Event

func (j *events) Append(e event.Event) error { *j = append(*j, e); return nil }

func (j *events) Sync() error { return nil }

func (j *events) Emit(e event.Event) { *j = append(*j, e) }

// A syncCounter is a journal that counts syncs.
type syncCounter struct {
	events
	syncs int
	err   error
}

func (j *syncCounter) Sync() error { j.syncs++; return j.err }

func TestRecorder_WaitsForEventsThatResumeNeeds(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		event        event.Event
		waits        bool
	}{
		{"begin", "a resume looks for it", event.Event{Type: event.OperationStarted}, true},
		{"end", "a resume looks for it", event.Event{Type: event.OperationFinished}, true},
		{"changed step", "it is not repeated", event.Event{Type: event.StepFinished, Outcome: event.Changed}, true},
		{"failed step", "its cause is reported", event.Event{Type: event.StepFinished, Outcome: event.Failed}, true},
		{"unchanged step", "a check finds it again", event.Event{Type: event.StepFinished, Outcome: event.Unchanged}, false},
		{"begin of a step", "the step waits before it changes something", event.Event{Type: event.StepStarted}, false},
		{"output", "it only informs", event.Event{Type: event.StepOutput}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			full := errors.New("disk full")
			j := &syncCounter{err: full}
			err := NewRecorder(j, 0, time.Now, nil).Emit(tc.event)
			if waits := j.syncs > 0; waits != tc.waits || errors.Is(err, full) != tc.waits {
				t.Errorf("waits: %v, error %v: %s", waits, err, tc.reason)
			}
		})
	}
}

// of returns the output of a host.
func (j *events) of(t *testing.T, host string) string {
	t.Helper()
	var text strings.Builder
	last := int64(40)
	for _, e := range *j {
		if e.Seq <= last {
			t.Fatalf("event %d comes after event %d", e.Seq, last)
		}
		last = e.Seq
		if e.Host == host && e.Type == event.StepOutput {
			text.WriteString(e.Message)
		}
	}
	return text.String()
}

// size returns the size of the events as JSON.
func (j *events) size(t *testing.T) int {
	t.Helper()
	b, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	return len(b)
}

// The journal keeps the beginning and the end of all output, however long it is and
// however it is split. Live sinks receive all of it.
func TestRecorder_KeepsBeginningAndEndOfLongOutput(t *testing.T) {
	lines := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "line %07d\n", i)
		}
		return b.String()
	}
	for _, tc := range []struct {
		name, text string
		piece      int
		cut        bool
	}{
		{"little: all of it", lines(100), 13, false},
		{"a share and a half: all of it", lines(60000), 32 << 10, false},
		{"much", lines(1 << 18), 32 << 10, true},
		{"in small pieces", lines(20000), 4, false},
		{"much, in small pieces", lines(50000), 4, true},
		{"one line", strings.Repeat("é", 1<<20), 32 << 10, true},
		{"all at once", lines(1 << 17), 13 << 17, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var journal, seen events
			r := NewRecorder(&journal, 40, time.Now, []event.Sink{&seen})
			emit := func(e event.Event) {
				t.Helper()
				if err := r.Emit(e); err != nil {
					t.Fatal(err)
				}
			}
			emit(event.Event{Type: event.StepOutput, Task: "t", Host: "b", Message: "other\n"})
			for rest := tc.text; rest != ""; {
				n := min(len(rest), tc.piece)
				emit(event.Event{Type: event.StepOutput, Task: "t", Host: "a", Message: rest[:n]})
				rest = rest[n:]
			}
			emit(event.Event{Type: event.StepFinished, Task: "t", Host: "a"})
			emit(event.Event{Type: event.StepFinished, Task: "t", Host: "b"})

			if live := seen.of(t, "a"); live != tc.text {
				t.Errorf("the sink received %d bytes of %d", len(live), len(tc.text))
			}
			text := journal.of(t, "a")
			if size := journal.size(t); size > 1<<20+1<<17 {
				t.Errorf("the journal has %d bytes", size)
			}
			head, tail, cut := strings.Cut(text, "[... ")
			if cut != tc.cut {
				t.Fatalf("cut: %v, want %v", cut, tc.cut)
			}
			if cut {
				var left int
				note, end, _ := strings.Cut(tail, "\n")
				if _, err := fmt.Sscanf(note, "%d bytes of output omitted ...]", &left); err != nil {
					t.Fatalf("%s: %v", note, err)
				}
				if len(end) < outputShare*3/4 {
					t.Errorf("only %d bytes of the end are kept", len(end))
				}
				text = head + tc.text[len(head):len(head)+left] + end
			}
			if text != tc.text {
				t.Error("the recorded output differs from the printed output")
			}
			if d := cmp.Diff(event.StepFinished, journal[len(journal)-1].Type); d != "" || len(r.outputs) != 0 {
				t.Errorf("at the end: %s%d outputs are still held", d, len(r.outputs))
			}
		})
	}
}
