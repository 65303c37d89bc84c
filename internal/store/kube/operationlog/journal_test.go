package operationlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
)

// operation is the operation of the tests.
var operation = &v1alpha1.Operation{
	ObjectMeta: metav1.ObjectMeta{Name: "prod-7-x2k4", Namespace: "team", UID: "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"},
	Spec:       v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: "upgrade"},
}

var began = time.Date(2026, 11, 20, 18, 15, 2, 123456789, time.UTC)

// note returns an event of about size bytes with a text.
func note(seq int64, size int) event.Event {
	return event.Event{Seq: seq, Type: event.Note, Time: began, Message: strings.Repeat("x", size)}
}

// notes returns small events with numbers.
func notes(numbers ...int64) (out []event.Event) {
	for _, n := range numbers {
		out = append(out, note(n, 10))
	}
	return out
}

// encode returns the segments of events, which follow the event with number last. Each call makes at least one
// segment.
func encode(t testing.TB, last int64, events ...event.Event) []v1alpha1.OperationLog {
	t.Helper()
	e := NewEncoder(operation, last)
	for _, ev := range events {
		if err := e.Add(ev); err != nil {
			t.Fatal(err)
		}
	}
	return e.Flush()
}

// segments returns a journal of n segments with two events each.
func segments(t testing.TB, n int) (out []v1alpha1.OperationLog) {
	t.Helper()
	for i := range int64(n) {
		out = append(out, encode(t, 2*i, notes(2*i+1, 2*i+2)...)...)
	}
	return out
}

// read returns all events of a journal.
func read(parts []v1alpha1.OperationLog) (out []event.Event, err error) {
	err = ReadEvents(operation, parts, func(e event.Event) error { out = append(out, e); return nil })
	return out, err
}

// mustRead returns all events of a journal without an error.
func mustRead(t testing.TB, parts []v1alpha1.OperationLog) []event.Event {
	t.Helper()
	out, err := read(parts)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// numbers returns the numbers of events.
func numbers(events []event.Event) (out []int64) {
	for _, e := range events {
		out = append(out, e.Seq)
	}
	return out
}

// idOf returns the id of a diagnostic, "" if err is another error.
func idOf(err error) string {
	var list diag.List
	if errors.As(err, &list) && len(list) == 1 && list[0].Message != "" && list[0].Hint != "" {
		return list[0].ID
	}
	return ""
}

// A journalist makes the events of a plausible operation. Numbers can be missing, because a journal does
// not have all output.
type journalist struct {
	*rand.Rand
	seq  int64
	time time.Time
}

func newJournalist(seed uint64) *journalist {
	return &journalist{Rand: rand.New(rand.NewPCG(seed, 1)), time: began}
}

// event returns an event with the next number and time.
func (j *journalist) event(e event.Event) event.Event {
	j.seq++
	if j.IntN(20) == 0 {
		j.seq += j.Int64N(5)
	}
	j.time = j.time.Add(time.Duration(j.IntN(300)) * time.Millisecond)
	e.Seq, e.Time, e.Operation, e.Cluster = j.seq, j.time, operation.Name, operation.Spec.ClusterRef.Name
	return e
}

// attempt returns the events of one attempt with tasks on hosts.
func (j *journalist) attempt(tasks, hosts int) (out []event.Event) {
	out = append(out, j.event(event.Event{Type: event.OperationStarted, Kind: "upgrade", Digest: "sha256:" + strings.Repeat("a", 64)}))
	after := ""
	for task := range tasks {
		for host := range hosts {
			e := event.Event{
				Module: fmt.Sprintf("module%d", task%7), Task: fmt.Sprintf("module%d.task-%d", task%7, task),
				Title: fmt.Sprintf("Install component %d", task), Host: fmt.Sprintf("worker-%d", host),
			}
			out = append(out, j.step(e, after)...)
			if host == 0 {
				after = e.Task + "@" + e.Host
			}
		}
	}
	if j.IntN(4) > 0 {
		out = append(out, j.event(event.Event{Type: event.OperationFinished, Outcome: event.Partial}))
	}
	return out
}

// step returns the events of one step on one host.
func (j *journalist) step(e event.Event, after string) (out []event.Event) {
	emit := func(typ event.Type, set func(*event.Event)) {
		next := e
		next.Type = typ
		set(&next)
		out = append(out, j.event(next))
	}
	emit(event.StepStarted, func(*event.Event) {})
	for range j.IntN(3) {
		emit(event.StepOutput, func(e *event.Event) { e.Message = j.text(j.IntN(400)) })
	}
	if j.IntN(30) == 0 {
		emit(event.StepRetry, func(e *event.Event) { e.Attempt, e.Message = 2, "connection reset" })
	}
	if j.IntN(10) == 0 {
		emit(event.StepProgress, func(e *event.Event) { e.Done, e.Total = 10, 100 })
	}
	if j.IntN(200) == 0 {
		return out // interrupted
	}
	emit(event.StepFinished, func(e *event.Event) {
		e.After = after
		switch j.IntN(20) {
		case 0:
			e.Outcome = event.Failed
			e.Failure = &event.Failure{Reason: "ExitCode", Code: v1alpha1.ErrorInternal, Message: "exit status 1", Detail: j.text(300)}
		case 1:
			e.Outcome = event.Skipped
		case 2, 3:
			e.Outcome = event.Unchanged
		default:
			e.Outcome = event.Changed
			e.Changes = []event.Change{{Kind: "file", Target: "/etc/kubernetes/" + j.text(8), Summary: "create"}}
		}
	})
	return out
}

// text returns lines with words and other characters.
func (j *journalist) text(size int) string {
	words := []string{"installing ", "kubelet ", "ü", "\x00", "containerd\n", "image sha256:", "done\n", "<", "\u2028", "12345 ", "warning: "}
	var out strings.Builder
	for out.Len() < size {
		out.WriteString(words[j.IntN(len(words))])
		fmt.Fprintf(&out, "%x", j.Uint32())
	}
	return out.String()
}
