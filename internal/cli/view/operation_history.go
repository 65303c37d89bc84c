package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/internal/event"
)

// A StepRun is a step that has ended, with the last lines of its programs' output.
type StepRun struct {
	event.Event
	Seconds float64  `json:"seconds"`
	Output  []string `json:"output,omitempty"`
}

// maxOutputLines is the number of output lines that are kept for each step.
const maxOutputLines = 20

// History collects the steps of an operation from its events.
type History struct {
	open map[[2]string]*StepRun
	runs []StepRun
	// began is the start of the last attempt; a resume starts a new attempt.
	began time.Time
	// ends holds the end of each step of that attempt, by "task@host", including
	// steps that had nothing to do. last is the key of the latest.
	ends map[string]event.Event
	last string
	// linked reports whether any event in ends names the previous step. Operations of
	// earlier versions do not name it.
	linked bool
}

func (h *History) RecordEvent(e event.Event) {
	if e.Type == event.OperationStarted {
		h.began, h.ends, h.last, h.linked = e.Time, map[string]event.Event{}, "", false
	}
	if e.Type == event.StepFinished && h.ends != nil {
		h.last = e.Task + "@" + e.Host
		h.ends[h.last] = e
		h.linked = h.linked || e.After != ""
	}
	k := [2]string{e.Task, e.Host}
	if h.open == nil {
		h.open = map[[2]string]*StepRun{}
	}
	s := h.open[k]
	if s == nil {
		s = &StepRun{Event: e}
	}
	switch e.Type {
	case event.StepStarted:
		h.open[k] = &StepRun{Event: e}
	case event.StepOutput:
		h.open[k] = s
		s.Output = append(s.Output, strings.Split(strings.TrimRight(e.Message, "\n"), "\n")...)
		s.Output = s.Output[max(0, len(s.Output)-maxOutputLines):]
	case event.StepFinished:
		s.Seconds = e.Time.Sub(s.Time).Seconds()
		s.Event = e
		h.runs = append(h.runs, *s)
		delete(h.open, k)
	}
}

// FailedSteps returns the steps that failed and did not succeed later.
func (h *History) FailedSteps() []StepRun {
	last := map[[2]string]int{}
	for i, r := range h.runs {
		last[[2]string{r.Task, r.Host}] = i
	}
	out := []StepRun{}
	for i, r := range h.runs {
		if (r.Outcome == event.Failed || r.Outcome == event.Ignored) && last[[2]string{r.Task, r.Host}] == i {
			out = append(out, r)
		}
	}
	return out
}

// slowestSteps returns the n steps that took longest.
func (h *History) slowestSteps(n int) []StepRun {
	runs := slices.DeleteFunc(slices.Clone(h.runs), func(r StepRun) bool { return r.Seconds < 0.1 })
	slices.SortStableFunc(runs, func(a, b StepRun) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return runs[:min(n, len(runs))]
}
