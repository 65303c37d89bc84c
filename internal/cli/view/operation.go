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
		{"Message", o.Status.Message},
		{"Ignored", strings.Join(o.Spec.Parameters.IgnoredChecks, ", ")},
	} {
		if line[1] != "" {
			fmt.Fprintf(w, "%-11s%s\n", line[0]+":", line[1])
		}
	}
	var rows [][]string
	for _, s := range o.Status.Steps {
		length := "-"
		if s.StartTime != nil && s.EndTime != nil {
			length = Duration(s.EndTime.Sub(s.StartTime.Time))
		}
		n := s.Hosts
		rows = append(rows, []string{
			s.Task, cmp.Or(s.Title, "-"), formatCount(n.Changed), formatCount(n.Done), formatCount(n.Failed), formatCount(n.Skipped), length,
		})
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
		if err := WriteTable(w, []string{"TASK", "TITLE", "CHANGED", "UNCHANGED", "FAILED", "SKIPPED", "TOOK"}, rows); err != nil {
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
