package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
)

// A PathStep is a step of an operation's critical path.
type PathStep struct {
	Task  string `json:"task"`
	Title string `json:"title"`
	Host  string `json:"host,omitempty"` // "" is the manager
	// Begin is the end of the previous step, in seconds since the operation began.
	// Seconds is the time from Begin to the end of this step.
	Begin   float64 `json:"begin"`
	Seconds float64 `json:"seconds"`
}

// CriticalPath returns the chain of steps that ends with the last one, in
// order: each began when the one before it ended.
func (h *History) CriticalPath() []PathStep {
	path := []PathStep{}
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
		path = append(path, PathStep{
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

// minSeparateSeconds is the duration, in seconds, from which a step of the critical path
// gets a separate line.
const minSeparateSeconds = 0.05

// WriteCriticalPath writes the chain of steps that determined the duration of an
// operation.
func WriteCriticalPath(w io.Writer, o *v1alpha1.Operation, h *History) error {
	path := h.CriticalPath()
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
		if p.Seconds < minSeparateSeconds {
			short += p.Seconds
			count++
			continue
		}
		rows = append(rows, []string{formatSeconds(p.Begin), formatSeconds(p.Seconds), p.Task, cmp.Or(p.Host, "manager"), p.Title})
	}
	fmt.Fprintf(w, "Critical path of operation %s: %d steps, %s\n\n", o.Name, len(path), formatSeconds(total))
	if err := WriteTable(w, []string{"BEGIN", "TOOK", "TASK", "HOST", "TITLE"}, rows); err != nil {
		return err
	}
	if count > 0 {
		fmt.Fprintf(w, "\nShorter steps: %d, %s in total\n", count, formatSeconds(short))
	}
	return nil
}
