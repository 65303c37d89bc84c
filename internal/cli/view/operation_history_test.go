package view

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

func TestCriticalPath_FollowsThePreviousSteps(t *testing.T) {
	zero := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	at := func(seconds float64, e event.Event) event.Event {
		e.Time = zero.Add(time.Duration(seconds * float64(time.Second)))
		return e
	}
	ended := func(task, host, after string) event.Event {
		return event.Event{Type: event.StepFinished, Task: task, Host: host, Title: "Do " + task, After: after, Outcome: event.Changed}
	}
	begun := event.Event{Type: event.OperationStarted}
	for _, c := range []struct {
		name   string
		events []event.Event
		want   []PathStep
		text   []string // parts of what is printed
	}{
		{
			name: "nothing has ended", events: []event.Event{at(0, begun)}, want: []PathStep{},
			text: []string{"No step of operation op-1 has ended."},
		},
		{
			name: "the slower of two hosts decides",
			events: []event.Event{
				at(0, begun), at(2, ended("a", "w1", "")), at(3, ended("a", "w2", "")),
				at(4, ended("b", "w1", "a@w1")), at(8, ended("b", "w2", "a@w2")), at(8.01, ended("c", "", "b@w2")),
			},
			want: []PathStep{
				{Task: "a", Title: "Do a", Host: "w2", Seconds: 3},
				{Task: "b", Title: "Do b", Host: "w2", Begin: 3, Seconds: 5},
				{Task: "c", Title: "Do c", Begin: 8, Seconds: 0.01},
			},
			text: []string{"3 steps, 8.0s", "3.0s    5.0s   b      w2", "Shorter steps: 1, 0.0s in total"},
		},
		{
			name: "a resumed operation begins again",
			events: []event.Event{
				at(0, begun), at(9, ended("a", "w1", "")), at(100, begun),
				at(101, ended("a", "w1", "")), at(105, ended("b", "w1", "a@w1")),
			},
			want: []PathStep{
				{Task: "a", Title: "Do a", Host: "w1", Seconds: 1},
				{Task: "b", Title: "Do b", Host: "w1", Begin: 1, Seconds: 4},
			},
		},
		{
			name: "an earlier version did not record what came before", want: []PathStep{},
			events: []event.Event{at(0, begun), at(1, ended("a", "w1", "")), at(2, ended("b", "w1", ""))},
			text:   []string{"an earlier version of Slipway ran it"},
		},
		{
			name:   "a damaged journal leads in a circle",
			events: []event.Event{at(0, begun), at(1, ended("a", "w1", "b@w1")), at(2, ended("b", "w1", "a@w1"))},
			want: []PathStep{
				{Task: "a", Title: "Do a", Host: "w1", Begin: 2, Seconds: -1},
				{Task: "b", Title: "Do b", Host: "w1", Begin: 1, Seconds: 1},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h History
			for _, e := range c.events {
				h.RecordEvent(e)
			}
			if d := cmp.Diff(c.want, h.CriticalPath(), cmpopts.EquateApprox(0, 1e-6)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			o := &v1alpha1.Operation{}
			o.Name = "op-1"
			var out bytes.Buffer
			if err := WriteCriticalPath(&out, o, &h); err != nil {
				t.Fatal(err)
			}
			for _, part := range c.text {
				if !strings.Contains(out.String(), part) {
					t.Errorf("%q is missing in:\n%s", part, out.String())
				}
			}
		})
	}
}
