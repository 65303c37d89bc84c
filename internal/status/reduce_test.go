package status

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

func timeAt(s int) time.Time {
	return time.Date(2026, 11, 20, 18, 15, s, 500, time.UTC)
}

func apiTimeAt(s int) *metav1.Time {
	return &metav1.Time{Time: timeAt(s).Truncate(time.Second)}
}

func startedEvent(s int) event.Event {
	return event.Event{Type: event.OperationStarted, Time: timeAt(s)}
}

func finishedEvent(s int, o event.Outcome) event.Event {
	return event.Event{Type: event.OperationFinished, Time: timeAt(s), Outcome: o}
}

func beginEvent(s int, task, host string) event.Event {
	return event.Event{Type: event.StepStarted, Time: timeAt(s), Task: task, Title: "doing " + task, Host: host}
}

func endEvent(s int, task, host string, o event.Outcome) event.Event {
	e := event.Event{Type: event.StepFinished, Time: timeAt(s), Task: task, Host: host, Outcome: o}
	if o == event.Failed || o == event.Ignored {
		e.Failure = &event.Failure{Reason: "DiskFull", Message: "no space left"}
	}
	return e
}

func TestReduce_BuildsTheStatus(t *testing.T) {
	failure := []v1alpha1.StepFailure{{Task: "a", Host: "w2", Reason: "DiskFull", Message: "no space left"}}
	for _, tc := range []struct {
		name, reason string
		events       []event.Event
		want         v1alpha1.OperationStatus
	}{
		{
			name: "nothing", reason: "recorded, not begun",
			want: v1alpha1.OperationStatus{State: v1alpha1.OperationPending},
		},
		{
			name: "running", reason: "a step has no end while a host is at it",
			events: []event.Event{startedEvent(0), beginEvent(1, "a", "w1"), beginEvent(1, "a", "w2"), endEvent(2, "a", "w1", event.Changed)},
			want: v1alpha1.OperationStatus{
				State: v1alpha1.OperationRunning, StartTime: apiTimeAt(0),
				Steps: []v1alpha1.OperationStep{{
					Task: "a", Title: "doing a", StartTime: apiTimeAt(1), Hosts: v1alpha1.HostCounts{Changed: 1},
				}},
			},
		},
		{
			name: "succeeded", reason: "the plain case",
			events: []event.Event{
				startedEvent(0), beginEvent(1, "a", "w1"), endEvent(2, "a", "w1", event.Unchanged),
				beginEvent(2, "b", ""), endEvent(3, "b", "", event.Changed), finishedEvent(4, event.Succeeded),
			},
			want: v1alpha1.OperationStatus{
				State: v1alpha1.OperationSucceeded, StartTime: apiTimeAt(0), EndTime: apiTimeAt(4),
				Steps: []v1alpha1.OperationStep{
					{Task: "a", Title: "doing a", StartTime: apiTimeAt(1), EndTime: apiTimeAt(2), Hosts: v1alpha1.HostCounts{Done: 1}},
					{Task: "b", Title: "doing b", StartTime: apiTimeAt(2), EndTime: apiTimeAt(3), Hosts: v1alpha1.HostCounts{Changed: 1}},
				},
			},
		},
		{
			name: "failed", reason: "the message is the root cause; what depended on it is skipped",
			events: []event.Event{
				startedEvent(0), beginEvent(1, "a", "w2"), endEvent(2, "a", "w2", event.Failed),
				{
					Type: event.StepFinished, Time: timeAt(2), Task: "b", Host: "w2", Outcome: event.Skipped,
					Failure: &event.Failure{Reason: "Skipped", Message: "not reached", CausedBy: "a"},
				},
				finishedEvent(3, event.Failed),
			},
			want: v1alpha1.OperationStatus{
				State: v1alpha1.OperationFailed, StartTime: apiTimeAt(0), EndTime: apiTimeAt(3),
				Reason: "DiskFull", Message: "doing a: w2: no space left",
				Steps: []v1alpha1.OperationStep{
					{Task: "a", Title: "doing a", StartTime: apiTimeAt(1), EndTime: apiTimeAt(2), Hosts: v1alpha1.HostCounts{Failed: 1}},
					{Task: "b", StartTime: apiTimeAt(2), EndTime: apiTimeAt(2), Hosts: v1alpha1.HostCounts{Skipped: 1}},
				},
				Failures: failure,
			},
		},
		{
			name: "ignored", reason: "an ignored failure is counted and told, and is not the cause of anything",
			events: []event.Event{
				startedEvent(0), beginEvent(1, "a", "w2"), endEvent(2, "a", "w2", event.Ignored),
				finishedEvent(3, event.Succeeded),
			},
			want: v1alpha1.OperationStatus{
				State: v1alpha1.OperationSucceeded, StartTime: apiTimeAt(0), EndTime: apiTimeAt(3),
				Steps: []v1alpha1.OperationStep{
					{Task: "a", Title: "doing a", StartTime: apiTimeAt(1), EndTime: apiTimeAt(2), Hosts: v1alpha1.HostCounts{Failed: 1}},
				},
				Failures: failure,
			},
		},
		{
			name: "partial", reason: "hosts were left behind: there is something to resume",
			events: []event.Event{startedEvent(0), endEvent(2, "a", "w2", event.Failed), finishedEvent(3, event.Partial)},
			want: v1alpha1.OperationStatus{
				State: v1alpha1.OperationFailed, StartTime: apiTimeAt(0), EndTime: apiTimeAt(3), Reason: "DiskFull", Message: "w2: no space left",
				Steps: []v1alpha1.OperationStep{
					{Task: "a", StartTime: apiTimeAt(2), EndTime: apiTimeAt(2), Hosts: v1alpha1.HostCounts{Failed: 1}},
				},
				Failures: failure,
			},
		},
		{
			name: "resumed", reason: "what a resume does again replaces what was known of the host",
			events: []event.Event{
				startedEvent(0), endEvent(1, "a", "w2", event.Failed), beginEvent(1, "a", "w1"), finishedEvent(2, event.Cancelled),
				startedEvent(10), endEvent(11, "a", "w2", event.Changed), finishedEvent(12, event.Succeeded),
			},
			want: v1alpha1.OperationStatus{
				State: v1alpha1.OperationSucceeded, StartTime: apiTimeAt(0), EndTime: apiTimeAt(12),
				Steps: []v1alpha1.OperationStep{
					{Task: "a", Title: "doing a", StartTime: apiTimeAt(1), EndTime: apiTimeAt(11), Hosts: v1alpha1.HostCounts{Changed: 1}},
				},
			},
		},
		{
			name: "cancelled", reason: "the state says so",
			events: []event.Event{startedEvent(0), finishedEvent(2, event.Cancelled)},
			want:   v1alpha1.OperationStatus{State: v1alpha1.OperationCancelled, StartTime: apiTimeAt(0), EndTime: apiTimeAt(2)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ReduceEvents(slices.Values(tc.events))
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

// maxSize is the limit of an object in the API.
const maxSize = 64 << 10

func TestReduce_IsBounded(t *testing.T) {
	var r Reducer
	r.Emit(startedEvent(0))
	for task := range 128 { // more tasks than any pipeline has
		for host := range 200 {
			e := endEvent(1, fmt.Sprintf("module.task-%d", task), fmt.Sprintf("worker-%d", host), event.Failed)
			e.Module, e.Title, e.Failure.Message = "module", "wait until the task is done", strings.Repeat("ü", 1000)
			r.Emit(e)
		}
	}
	r.Emit(finishedEvent(2, event.Failed))
	got := r.Status()
	if n := len(got.Failures); n != v1alpha1.MaxFailures || got.Steps[0].Hosts.Failed != 200 {
		t.Errorf("%d failures of %d on the first step: want the first %d, and all counted", n, got.Steps[0].Hosts.Failed, v1alpha1.MaxFailures)
	}
	if f := got.Failures[49]; f.Host != "worker-49" || len(f.Message) > v1alpha1.MaxFailureMessage || !utf8.ValidString(f.Message) {
		t.Errorf("failure 50 is of %s, with %d bytes", f.Host, len(f.Message))
	}
	text, err := json.Marshal(got)
	if err != nil || len(text) > maxSize {
		t.Errorf("the status has %d bytes (%v), want at most %d", len(text), err, maxSize)
	}
}

func TestLimitMessage_CutsBetweenCharacters(t *testing.T) {
	for _, tc := range []struct{ message, want string }{
		{"", ""},
		{"12345678", "12345678"},
		{"123456789", "12345…"},
		{"1234üüü", "1234…"},
	} {
		if got := LimitMessage(tc.message, 8); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.message, got, tc.want)
		}
	}
}
