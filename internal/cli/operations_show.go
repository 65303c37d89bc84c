package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
)

func newOperationsShowCommand(c operationsCommand) *cobra.Command {
	var failed, critical bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show an operation and its steps",
		Long: `Shows an operation: its steps, the slowest steps, and the failures with their
causes. ID can be a unique prefix of the operation's id.

With --critical-path, shows the chain of steps that determined the duration of the
operation: each step began when the previous step ended.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: c.completeOperations,
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := c.open(cmd.Context())
			if err != nil {
				return err
			}
			o, err := svc.Operation(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var h history
			if err := svc.Events(cmd.Context(), o.Name, false, func(e event.Event) error { h.see(e); return nil }); err != nil {
				return err
			}
			switch {
			case failed:
				return c.writeResult(h.failed(), func(w io.Writer) error { return writeFailed(w, o, h.failed()) })
			case critical:
				return c.writeResult(h.criticalPath(), func(w io.Writer) error { return writeCriticalPath(w, o, &h) })
			}
			return c.writeResult(o, func(w io.Writer) error { return writeOperation(w, o, &h) })
		},
	}
	cmd.Flags().BoolVar(&failed, "failed", false, "show the failures, with output and remedies")
	cmd.Flags().BoolVar(&critical, "critical-path", false, "show the chain of steps that determined the duration")
	cmd.MarkFlagsMutuallyExclusive("failed", "critical-path")
	return cmd
}

func writeOperation(w io.Writer, o *v1alpha1.Operation, h *history) error {
	for _, line := range [][2]string{
		{"Operation", o.Name},
		{"Cluster", o.Spec.Cluster},
		{"Type", o.Spec.Type},
		{"Phase", string(o.Status.Phase)},
		{"Took", took(o.Status)},
		{"Message", o.Status.Message},
		{"Ignored", strings.Join(o.Spec.IgnoredChecks, ", ")},
	} {
		if line[1] != "" {
			fmt.Fprintf(w, "%-11s%s\n", line[0]+":", line[1])
		}
	}
	var rows [][]string
	for _, s := range o.Status.Steps {
		length := "-"
		if s.StartTime != nil && s.EndTime != nil {
			length = view.Duration(s.EndTime.Sub(s.StartTime.Time))
		}
		n := s.Hosts
		rows = append(rows, []string{
			s.Task, cmp.Or(s.Title, "-"), number(n.Changed), number(n.Done), number(n.Failed), number(n.Skipped), length,
		})
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
		if err := view.Table(w, []string{"TASK", "TITLE", "CHANGED", "UNCHANGED", "FAILED", "SKIPPED", "TOOK"}, rows); err != nil {
			return err
		}
	}
	if slow := h.slowest(5); len(slow) > 0 {
		fmt.Fprintln(w, "\nSlowest steps:")
		for _, r := range slow {
			fmt.Fprintf(w, "%8s  %s\n", seconds(r.Seconds), view.Where(r.Title, r.Host))
		}
	}
	if f := h.failed(); len(f) > 0 {
		fmt.Fprintln(w, "\nFailed:")
		for _, r := range f {
			fmt.Fprintf(w, "  %s: %s\n", view.Where(r.Title, r.Host), reason(r))
		}
	}
	if next := nextOf(o); next != "" {
		fmt.Fprintf(w, "\nNext: %s\n", next)
	}
	return nil
}

func number(n int) string {
	if n == 0 {
		return "."
	}
	return fmt.Sprint(n)
}

func reason(r stepRun) string {
	if r.Failure == nil {
		return string(r.Outcome)
	}
	return view.Printable(r.Failure.Message)
}

func nextOf(o *v1alpha1.Operation) string {
	switch o.Status.Phase {
	case v1alpha1.OperationFailed, v1alpha1.OperationCancelled:
		switch lifecycle.Kind(o.Spec.Type) {
		case lifecycle.InitOS:
			return "slipway init os -f FILE"
		case lifecycle.InitRegistry:
			return "slipway init registry -f FILE"
		case lifecycle.Defrag:
			return "slipway etcd defrag " + o.Spec.Cluster
		}
		return "slipway resume " + o.Spec.Cluster
	case v1alpha1.OperationRunning:
		return "slipway operations watch " + o.Name
	}
	return ""
}

// writeFailed writes the failures with everything that is known about their causes.
func writeFailed(w io.Writer, o *v1alpha1.Operation, runs []stepRun) error {
	if len(runs) == 0 {
		fmt.Fprintf(w, "Nothing failed in operation %s.\n", o.Name)
		if o.Status.Message != "" {
			fmt.Fprintf(w, "Message: %s\n", view.Printable(o.Status.Message))
		}
		return nil
	}
	for i, r := range runs {
		if i > 0 {
			fmt.Fprintln(w)
		}
		f := cmp.Or(r.Failure, &event.Failure{})
		fmt.Fprintf(w, "FAILED: %s: %s%s\n", view.Where(r.Title, r.Host), reason(r), view.InGuide(f.Reason))
		fmt.Fprintf(w, "  task %s, after %s, at %s\n", r.Task, seconds(r.Seconds), r.Time.Format(time.RFC3339))
		if f.Remedy != "" {
			fmt.Fprintf(w, "  remedy: %s\n", view.Printable(f.Remedy))
		}
		lines := r.Output
		if f.Detail != "" {
			lines = strings.Split(strings.TrimRight(f.Detail, "\n"), "\n")
		}
		for _, l := range lines {
			fmt.Fprintf(w, "  | %s\n", view.Printable(l))
		}
	}
	fmt.Fprintf(w, "\nFull log: slipway operations logs %s\n", o.Name)
	return nil
}
