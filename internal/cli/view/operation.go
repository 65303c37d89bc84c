package view

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	kinds "slipway.dev/slipway/internal/lifecycle/operation"
)

// WriteOperation writes an operation with its steps, the slowest steps, the failures and
// the next command.
func WriteOperation(w io.Writer, o *v1alpha1.Operation, h *History) error {
	for _, line := range [][2]string{
		{"Operation", o.Name},
		{"Cluster", o.Spec.ClusterRef.Name},
		{"Type", o.Spec.Kind},
		{"Phase", string(o.Status.State)},
		{"Took", FormatOperationDuration(o.Status)},
		{"Hosts", formatHostCounts(o.Status.HostCounts)},
		{"Error", formatErrorCode(o.Status)},
		{"Message", o.Status.Message},
		{"Ignored", strings.Join(o.Spec.Parameters.IgnoredChecks, ", ")},
	} {
		if line[1] != "" {
			fmt.Fprintf(w, "%-11s%s\n", line[0]+":", line[1])
		}
	}
	if rows := stepRows(o.Status); len(rows) > 0 {
		fmt.Fprintln(w)
		head := []string{"TASK", "TITLE", "CHANGED", "UNCHANGED", "FAILED", "IGNORED", "SKIPPED", "TOOK"}
		if err := WriteTable(w, head, rows); err != nil {
			return err
		}
	}
	if slow := h.slowestSteps(5); len(slow) > 0 {
		fmt.Fprintln(w, "\nSlowest steps:")
		for _, r := range slow {
			fmt.Fprintf(w, "%8s  %s\n", formatSeconds(r.Seconds), Where(r.Title, r.Host))
		}
	}
	if f := h.FailedSteps(); len(f) > 0 {
		fmt.Fprintln(w, "\nFailed:")
		for _, r := range f {
			fmt.Fprintf(w, "  %s: %s\n", Where(r.Title, r.Host), describeFailure(r))
		}
	}
	if next := nextOperationCommand(o); next != "" {
		fmt.Fprintf(w, "\nNext: %s\n", next)
	}
	return nil
}

// stepRows returns the rows of the table of steps.
func stepRows(s v1alpha1.OperationStatus) (rows [][]string) {
	add := func(task, title string, n v1alpha1.HostCounts, took string) {
		rows = append(rows, []string{
			task, title, formatCount(n.Changed), formatCount(n.Done), formatCount(n.Failed), formatCount(n.Ignored),
			formatCount(n.Skipped), took,
		})
	}
	for _, s := range s.Steps {
		took := "-"
		if s.StartTime != nil && s.EndTime != nil {
			took = Duration(s.EndTime.Sub(s.StartTime.Time))
		}
		add(s.Task, cmp.Or(s.Title, "-"), s.Hosts, took)
	}
	if others := s.OtherSteps; others != nil {
		add("-", fmt.Sprintf("%d other steps", others.Count), others.Hosts, "-")
	}
	return rows
}

// formatHostCounts formats the number of hosts by outcome; "" if no host took part.
func formatHostCounts(n v1alpha1.HostCounts) string {
	if n.Total == 0 {
		return ""
	}
	var parts []string
	for _, p := range []struct {
		count   int
		outcome string
	}{{n.Failed, "failed"}, {n.Ignored, "ignored"}, {n.Changed, "changed"}, {n.Done, "unchanged"}, {n.Skipped, "skipped"}} {
		if p.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.count, p.outcome))
		}
	}
	return strings.TrimSuffix(fmt.Sprintf("%d: %s", n.Total, strings.Join(parts, ", ")), ": ")
}

// formatErrorCode formats why an operation failed, for example "Unreachable
// (host-unreachable)"; "" if it did not fail.
func formatErrorCode(s v1alpha1.OperationStatus) string {
	if s.ErrorCode == "" || s.Reason == "" {
		return string(s.ErrorCode)
	}
	return fmt.Sprintf("%s (%s)", s.ErrorCode, s.Reason)
}

func formatCount(n int) string {
	if n == 0 {
		return "."
	}
	return fmt.Sprint(n)
}

func describeFailure(r StepRun) string {
	if r.Failure == nil {
		return string(r.Outcome)
	}
	return PrintableLine(r.Failure.Message)
}

func nextOperationCommand(o *v1alpha1.Operation) string {
	switch o.Status.State {
	case v1alpha1.OperationFailed, v1alpha1.OperationCancelled:
		return kinds.Kind(o.Spec.Kind).Resume(kinds.End{Cluster: o.Spec.ClusterRef.Name})
	case v1alpha1.OperationRunning:
		return "slipway operations watch " + o.Name
	}
	return ""
}

// WriteFailedSteps writes the failures with everything that is known about their causes.
func WriteFailedSteps(w io.Writer, o *v1alpha1.Operation, runs []StepRun) error {
	if len(runs) == 0 {
		fmt.Fprintf(w, "Nothing failed in operation %s.\n", o.Name)
		if o.Status.Message != "" {
			fmt.Fprintf(w, "Message: %s\n", PrintableLine(o.Status.Message))
		}
		return nil
	}
	for i, r := range runs {
		if i > 0 {
			fmt.Fprintln(w)
		}
		f := cmp.Or(r.Failure, &event.Failure{})
		fmt.Fprintf(w, "FAILED: %s: %s%s\n", Where(r.Title, r.Host), describeFailure(r), InGuide(f.Reason))
		fmt.Fprintf(w, "  task %s, after %s, at %s\n", r.Task, formatSeconds(r.Seconds), r.Time.Format(time.RFC3339))
		if f.Remedy != "" {
			fmt.Fprintf(w, "  remedy: %s\n", PrintableLine(f.Remedy))
		}
		lines := r.Output
		if f.Detail != "" {
			lines = strings.Split(strings.TrimRight(f.Detail, "\n"), "\n")
		}
		for _, l := range lines {
			fmt.Fprintf(w, "  | %s\n", PrintableLine(l))
		}
	}
	fmt.Fprintf(w, "\nFull log: slipway operations logs %s\n", o.Name)
	return nil
}

// FormatOperationDuration formats how long an operation took; "-" if it has not ended.
func FormatOperationDuration(s v1alpha1.OperationStatus) string {
	if s.StartTime == nil || s.EndTime == nil {
		return "-"
	}
	return Duration(s.EndTime.Sub(s.StartTime.Time))
}

func formatSeconds(s float64) string { return Duration(time.Duration(s * float64(time.Second))) }
