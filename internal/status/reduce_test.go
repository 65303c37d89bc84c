package status

import (
	"slices"
	"testing"
	"time"

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
	one := v1alpha1.HostCounts{Failed: 1, Total: 1}
	failed := []v1alpha1.OperationHost{{Name: "w2", State: v1alpha1.HostFailed, Seconds: 1}}
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
				State: v1alpha1.OperationRunning, StartTime: apiTimeAt(0), HostCounts: v1alpha1.HostCounts{Changed: 1, Total: 2},
				Hosts: []v1alpha1.OperationHost{
					{Name: "w1", State: v1alpha1.HostChanged, Seconds: 1}, {Name: "w2", State: v1alpha1.HostRunning},
				},
				Steps: []v1alpha1.OperationStep{{
					Task: "a", Title: "doing a", StartTime: apiTimeAt(1), Hosts: v1alpha1.HostCounts{Changed: 1, Total: 2},
				}},
			},
		},
		{
			name: "succeeded", reason: "the manager counts as a host of its step only",
			events: []event.Event{
				startedEvent(0), beginEvent(1, "a", "w1"), endEvent(2, "a", "w1", event.Unchanged),
				beginEvent(2, "b", ""), endEvent(3, "b", "", event.Changed), finishedEvent(4, event.Succeeded),
			},
			want: v1alpha1.OperationStatus{
				State: v1alpha1.OperationSucceeded, StartTime: apiTimeAt(0), EndTime: apiTimeAt(4),
				HostCounts: v1alpha1.HostCounts{Done: 1, Total: 1},
				Hosts:      []v1alpha1.OperationHost{{Name: "w1", State: v1alpha1.HostDone, Seconds: 1}},
				Steps: []v1alpha1.OperationStep{
					{
						Task: "a", Title: "doing a", StartTime: apiTimeAt(1), EndTime: apiTimeAt(2),
						Hosts: v1alpha1.HostCounts{Done: 1, Total: 1},
					},
					{
						Task: "b", Title: "doing b", StartTime: apiTimeAt(2), EndTime: apiTimeAt(3),
						Hosts: v1alpha1.HostCounts{Changed: 1, Total: 1},
					},
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
				Reason: "DiskFull", ErrorCode: v1alpha1.ErrorCapacity, Message: "doing a: w2: no space left",
				HostCounts: one, Hosts: failed,
				Steps: []v1alpha1.OperationStep{
					{Task: "a", Title: "doing a", StartTime: apiTimeAt(1), EndTime: apiTimeAt(2), Hosts: one},
					{Task: "b", StartTime: apiTimeAt(2), EndTime: apiTimeAt(2), Hosts: v1alpha1.HostCounts{Skipped: 1, Total: 1}},
				},
				FailureCount: 1, Failures: failure,
			},
		},
		{
			name: "ignored", reason: "an ignored failure is counted and reported, and is not the cause of anything",
			events: []event.Event{
				startedEvent(0), beginEvent(1, "a", "w2"), endEvent(2, "a", "w2", event.Ignored),
				finishedEvent(3, event.Succeeded),
			},
			want: v1alpha1.OperationStatus{
				State: v1alpha1.OperationSucceeded, StartTime: apiTimeAt(0), EndTime: apiTimeAt(3),
				HostCounts: v1alpha1.HostCounts{Ignored: 1, Total: 1},
				Hosts:      []v1alpha1.OperationHost{{Name: "w2", State: v1alpha1.HostIgnored, Seconds: 1}},
				Steps: []v1alpha1.OperationStep{{
					Task: "a", Title: "doing a", StartTime: apiTimeAt(1), EndTime: apiTimeAt(2),
					Hosts: v1alpha1.HostCounts{Ignored: 1, Total: 1},
				}},
				FailureCount: 1, Failures: failure,
			},
		},
		{
			name: "partial", reason: "hosts were left behind: there is something to resume",
			events: []event.Event{startedEvent(0), endEvent(2, "a", "w2", event.Failed), finishedEvent(3, event.Partial)},
			want: v1alpha1.OperationStatus{
				State: v1alpha1.OperationFailed, StartTime: apiTimeAt(0), EndTime: apiTimeAt(3),
				Reason: "DiskFull", ErrorCode: v1alpha1.ErrorCapacity, Message: "w2: no space left",
				HostCounts: one, Hosts: []v1alpha1.OperationHost{{Name: "w2", State: v1alpha1.HostFailed}},
				Steps:        []v1alpha1.OperationStep{{Task: "a", StartTime: apiTimeAt(2), EndTime: apiTimeAt(2), Hosts: one}},
				FailureCount: 1, Failures: failure,
			},
		},
		{
			name: "resumed", reason: "the outcomes of a resume replace earlier ones, and a host that was interrupted is not running",
			events: []event.Event{
				startedEvent(0), endEvent(1, "a", "w2", event.Failed), beginEvent(1, "a", "w1"), finishedEvent(2, event.Cancelled),
				startedEvent(10), endEvent(11, "a", "w2", event.Changed), finishedEvent(12, event.Succeeded),
			},
			want: v1alpha1.OperationStatus{
				State: v1alpha1.OperationSucceeded, StartTime: apiTimeAt(0), EndTime: apiTimeAt(12),
				HostCounts: v1alpha1.HostCounts{Changed: 1, Total: 2},
				Hosts:      []v1alpha1.OperationHost{{Name: "w1", State: v1alpha1.HostSkipped}, {Name: "w2", State: v1alpha1.HostChanged}},
				Steps: []v1alpha1.OperationStep{{
					Task: "a", Title: "doing a", StartTime: apiTimeAt(1), EndTime: apiTimeAt(11),
					Hosts: v1alpha1.HostCounts{Changed: 1, Total: 2},
				}},
			},
		},
		{
			name: "resumed with a lost host", reason: "a failure that the resume does not repeat is over",
			events: []event.Event{
				startedEvent(0), endEvent(0, "connect", "w1", event.Failed), endEvent(1, "a", "w2", event.Changed), finishedEvent(2, event.Partial),
				startedEvent(10), endEvent(11, "a", "w1", event.Changed), endEvent(11, "a", "w2", event.Unchanged), finishedEvent(12, event.Succeeded),
			},
			want: v1alpha1.OperationStatus{
				State: v1alpha1.OperationSucceeded, StartTime: apiTimeAt(0), EndTime: apiTimeAt(12),
				HostCounts: v1alpha1.HostCounts{Done: 1, Changed: 1, Total: 2},
				Hosts:      []v1alpha1.OperationHost{{Name: "w1", State: v1alpha1.HostChanged}, {Name: "w2", State: v1alpha1.HostDone}},
				Steps: []v1alpha1.OperationStep{{
					Task: "a", StartTime: apiTimeAt(1), EndTime: apiTimeAt(11),
					Hosts: v1alpha1.HostCounts{Done: 1, Changed: 1, Total: 2},
				}},
			},
		},
		{
			name: "cancelled", reason: "the state tells it, and a stopped operation has no error code",
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

// TestReduce_ReturnsErrorCode tests the reason, the code and the message of an operation that
// has ended.
func TestReduce_ReturnsErrorCode(t *testing.T) {
	root := endEvent(1, "a", "w1", event.Failed)
	with := func(e event.Event, f event.Failure) event.Event {
		e.Failure = &f
		return e
	}
	end := finishedEvent(3, event.Failed)
	end.Task, end.Title, end.Host = "b", "join node", "w2"
	unreachable := event.Failure{Reason: "host-unreachable", Code: v1alpha1.ErrorUnreachable, Message: "no answer"}
	type result struct {
		Reason  string
		Code    v1alpha1.ErrorCode
		Message string
	}
	for _, tc := range []struct {
		name, reason string
		events       []event.Event
		want         result
	}{
		{
			"end with a code", "the end of the operation decides",
			[]event.Event{root, with(end, unreachable)},
			result{"host-unreachable", v1alpha1.ErrorUnreachable, "join node: w2: no answer"},
		},
		{
			"end without a step", "a lost lock is a failure of no step",
			[]event.Event{with(finishedEvent(3, event.Failed), event.Failure{Reason: "LockLost", Code: v1alpha1.ErrorConflict, Message: "lost"})},
			result{"LockLost", v1alpha1.ErrorConflict, "lost"},
		},
		{
			"journal without codes, id", "an earlier version wrote it: the table has the code of the id",
			[]event.Event{
				with(root, event.Failure{Reason: "ssh-auth-failed", Message: "refused"}),
				with(end, event.Failure{Reason: "ssh-auth-failed", Message: "refused"}),
			},
			result{"ssh-auth-failed", v1alpha1.ErrorCredentials, "w1: refused"},
		},
		{
			"journal without codes, other reason", "a reason without a code is internal",
			[]event.Event{with(root, event.Failure{Reason: "CommandFailed", Message: "exit 1"}), finishedEvent(3, event.Failed)},
			result{"CommandFailed", v1alpha1.ErrorInternal, "w1: exit 1"},
		},
		{
			"no failure", "the state is Failed, so it has a code",
			[]event.Event{finishedEvent(3, event.Failed)},
			result{"", v1alpha1.ErrorInternal, ""},
		},
		{
			"message of the end", "it is complete",
			[]event.Event{func() event.Event {
				e := with(finishedEvent(3, event.Failed), event.Failure{Reason: "locked", Code: v1alpha1.ErrorConflict, Message: "in use"})
				e.Message = "cluster prod is locked"
				return e
			}()},
			result{"locked", v1alpha1.ErrorConflict, "cluster prod is locked"},
		},
		{
			"consequence first", "it is not the cause",
			[]event.Event{
				with(endEvent(1, "z", "w3", event.Failed), event.Failure{Reason: "Skipped", CausedBy: "a@w1"}), root, finishedEvent(3, event.Failed),
			},
			result{"DiskFull", v1alpha1.ErrorCapacity, "w1: no space left"},
		},
		{
			"resumed", "the failure of the first attempt is over",
			[]event.Event{root, with(end, unreachable), startedEvent(10), finishedEvent(12, event.Cancelled)},
			result{},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ReduceEvents(slices.Values(append([]event.Event{startedEvent(0)}, tc.events...)))
			if d := cmp.Diff(tc.want, result{got.Reason, got.ErrorCode, got.Message}); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}
