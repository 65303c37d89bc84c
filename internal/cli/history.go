package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
)

// A stepRun is a step that has ended, with the last lines of its programs' output.
type stepRun struct {
	event.Event
	Seconds float64  `json:"seconds"`
	Output  []string `json:"output,omitempty"`
}

// evidence is the number of output lines that are kept for each step.
const evidence = 20

// history collects the steps of an operation from its events.
type history struct {
	open map[[2]string]*stepRun
	runs []stepRun
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

func (h *history) see(e event.Event) {
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
		h.open = map[[2]string]*stepRun{}
	}
	s := h.open[k]
	if s == nil {
		s = &stepRun{Event: e}
	}
	switch e.Type {
	case event.StepStarted:
		h.open[k] = &stepRun{Event: e}
	case event.StepOutput:
		h.open[k] = s
		s.Output = append(s.Output, strings.Split(strings.TrimRight(e.Message, "\n"), "\n")...)
		s.Output = s.Output[max(0, len(s.Output)-evidence):]
	case event.StepFinished:
		s.Seconds = e.Time.Sub(s.Time).Seconds()
		s.Event = e
		h.runs = append(h.runs, *s)
		delete(h.open, k)
	}
}

// failed returns the steps that failed and did not succeed later.
func (h *history) failed() []stepRun {
	last := map[[2]string]int{}
	for i, r := range h.runs {
		last[[2]string{r.Task, r.Host}] = i
	}
	out := []stepRun{}
	for i, r := range h.runs {
		if (r.Outcome == event.Failed || r.Outcome == event.Ignored) && last[[2]string{r.Task, r.Host}] == i {
			out = append(out, r)
		}
	}
	return out
}

// slowest returns the n steps that took longest.
func (h *history) slowest(n int) []stepRun {
	runs := slices.DeleteFunc(slices.Clone(h.runs), func(r stepRun) bool { return r.Seconds < 0.1 })
	slices.SortStableFunc(runs, func(a, b stepRun) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return runs[:min(n, len(runs))]
}

// A pathStep is a step of an operation's critical path.
type pathStep struct {
	Task  string `json:"task"`
	Title string `json:"title"`
	Host  string `json:"host,omitempty"` // "" is the manager
	// Begin is the end of the previous step, in seconds since the operation began.
	// Seconds is the time from Begin to the end of this step.
	Begin   float64 `json:"begin"`
	Seconds float64 `json:"seconds"`
}

// criticalPath returns the chain of steps that ends with the last one, in
// order: each began when the one before it ended.
func (h *history) criticalPath() []pathStep {
	path := []pathStep{}
	if len(h.ends) > 1 && !h.linked {
		return path
	}
	seen := map[string]bool{} // a damaged journal must not cause an endless loop
	for at := h.last; at != "" && !seen[at]; {
		seen[at] = true
		e := h.ends[at]
		before, known := h.ends[e.After]
		begin := h.began
		if known {
			begin = before.Time
		}
		path = append(path, pathStep{
			Task: e.Task, Title: e.Title, Host: e.Host,
			Begin: begin.Sub(h.began).Seconds(), Seconds: e.Time.Sub(begin).Seconds(),
		})
		if at = e.After; !known {
			break
		}
	}
	slices.Reverse(path)
	return path
}

// shortest is the duration, in seconds, from which a step of the critical path gets a
// separate line.
const shortest = 0.05

func writeCriticalPath(w io.Writer, o *v1alpha1.Operation, h *history) error {
	path := h.criticalPath()
	switch {
	case len(path) == 0 && len(h.ends) > 0:
		fmt.Fprintf(w, "Operation %s has no critical path: an earlier version of Slipway ran it.\n", o.Name)
		return nil
	case len(path) == 0:
		fmt.Fprintf(w, "No step of operation %s has ended.\n", o.Name)
		return nil
	}
	var rows [][]string
	total, short, count := 0.0, 0.0, 0
	for _, p := range path {
		total += p.Seconds
		if p.Seconds < shortest {
			short += p.Seconds
			count++
			continue
		}
		rows = append(rows, []string{seconds(p.Begin), seconds(p.Seconds), p.Task, cmp.Or(p.Host, "manager"), p.Title})
	}
	fmt.Fprintf(w, "Critical path of operation %s: %d steps, %s\n\n", o.Name, len(path), seconds(total))
	if err := view.Table(w, []string{"BEGIN", "TOOK", "TASK", "HOST", "TITLE"}, rows); err != nil {
		return err
	}
	if count > 0 {
		fmt.Fprintf(w, "\nShorter steps: %d, %s in total\n", count, seconds(short))
	}
	return nil
}
