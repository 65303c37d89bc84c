package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/store"
)

func (a *app) operationsCmd() *cobra.Command {
	cmd := program.Parent("operations", "List, show and watch operations", "operation", "ops")
	cmd.AddCommand(a.operationsListCmd(), a.operationsShowCmd(), a.operationsLogsCmd(), a.operationsWatchCmd())
	return cmd
}

func (a *app) operationsListCmd() *cobra.Command {
	var noHeaders bool
	cmd := &cobra.Command{
		Use: "list [NAME]", Short: "List operations, newest first",
		Long: "Lists the operations of a cluster, or without NAME of all clusters, newest first.",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := a.svc(cmd.Context())
			if err != nil {
				return err
			}
			list, err := svc.Operations(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			if list == nil {
				list = []v1alpha1.Operation{}
			}
			return a.data(list, func(w io.Writer) error {
				if len(list) == 0 {
					a.say("No operations found.")
					return nil
				}
				var rows [][]string
				for _, o := range list {
					rows = append(rows, []string{
						o.Name, o.Spec.Cluster, o.Spec.Type, string(o.Status.Phase), a.age(o.CreationTimestamp.Time), took(o.Status), o.Status.Message,
					})
				}
				return table(w, noHeaders, []string{"ID", "CLUSTER", "TYPE", "PHASE", "AGE", "TOOK", ""}, rows)
			})
		},
	}
	headersFlag(cmd, &noHeaders)
	return cmd
}

// took formats how long an operation took; "-" if it has not ended.
func took(s v1alpha1.OperationStatus) string {
	if s.StartTime == nil || s.EndTime == nil {
		return "-"
	}
	return view.Duration(s.EndTime.Sub(s.StartTime.Time))
}

func (a *app) operationsShowCmd() *cobra.Command {
	var failed, critical bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show an operation and its steps",
		Long: `Shows an operation: its steps, the slowest steps, and the failures with their
causes. ID can be a unique prefix of the operation's id.

With --critical-path, shows the chain of steps that determined the duration of the
operation: each step began when the previous step ended.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.operationIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := a.svc(cmd.Context())
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
				return a.data(h.failed(), func(w io.Writer) error { return writeFailed(w, o, h.failed()) })
			case critical:
				return a.data(h.criticalPath(), func(w io.Writer) error { return writeCriticalPath(w, o, &h) })
			}
			return a.data(o, func(w io.Writer) error { return writeOperation(w, o, &h) })
		},
	}
	cmd.Flags().BoolVar(&failed, "failed", false, "show the failures, with output and remedies")
	cmd.Flags().BoolVar(&critical, "critical-path", false, "show the chain of steps that determined the duration")
	cmd.MarkFlagsMutuallyExclusive("failed", "critical-path")
	return cmd
}

func seconds(s float64) string { return view.Duration(time.Duration(s * float64(time.Second))) }

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

func (a *app) operationsLogsCmd() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "logs ID", Short: "Show the log of an operation",
		Long: `Shows the complete log of an operation, including the output of programs. If a
step on a host printed more than a megabyte, only the beginning and the end are shown.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.operationIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := a.svc(cmd.Context())
			if err != nil {
				return err
			}
			var v view.View = view.NewPlain(a.Out, view.Options{Style: a.outStyle(), Debug: true, Now: a.env.Now})
			if a.format != view.Text {
				v = view.NewRecord(a.Out, a.Err, a.format)
			}
			defer v.Close()
			return a.events(cmd.Context(), svc, args[0], follow, v)
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, "continue until the operation ends")
	return cmd
}

func (a *app) operationsWatchCmd() *cobra.Command {
	return &cobra.Command{
		Use: "watch [ID|NAME]", Short: "Watch a running operation",
		Long: `Shows the progress of an operation as in the terminal that started it. Give the ID
of an operation, or the NAME of a cluster for its latest operation. Ctrl-C stops
watching; it does not stop the operation. The command ends with the exit code of the
operation.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.operationsAndClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			svc, err := a.svc(ctx)
			if err != nil {
				return err
			}
			id, err := a.latest(ctx, svc, args)
			if err != nil {
				return err
			}
			o, err := svc.Operation(ctx, id)
			if err != nil {
				return err
			}
			return a.watch(ctx, svc, o)
		},
	}
}

// watch shows an operation until it ends, and its result.
func (a *app) watch(ctx context.Context, svc lifecycle.Service, o *v1alpha1.Operation) error {
	v := a.view(nil)
	defer v.Close()
	var (
		h     history
		first time.Time
		last  event.Event
	)
	err := a.events(ctx, svc, o.Name, true, event.SinkFunc(func(e event.Event) {
		h.see(e)
		if first.IsZero() {
			first = e.Time
		}
		last = e
		v.Emit(e)
	}))
	v.Close()
	res := &lifecycle.Result{Operation: o.Name, Cluster: o.Spec.Cluster, Outcome: last.Outcome, Duration: last.Time.Sub(first)}
	for _, r := range h.failed() {
		f := cmp.Or(r.Failure, &event.Failure{})
		res.Failures = append(res.Failures, lifecycle.HostFailure{Host: r.Host, Task: r.Task, Title: r.Title, Failure: *f})
	}
	ending := view.Ending{Result: res, Kind: lifecycle.Kind(o.Spec.Type), Style: a.style()}
	switch code := outcomeCode(last.Outcome); {
	case errors.Is(err, store.ErrNoEnd):
		a.say("Operation %s is no longer running: its process was killed.", o.Name)
		ending.Onward(a.Err)
		return &exitError{code: exitFailed}
	case err != nil:
		return err
	case code != exitDone:
		ending.Failed(a.Err)
		return &exitError{code: code}
	}
	a.say("%s %s.", o.Name, last.Outcome)
	return nil
}

// events passes an operation's events to a sink.
func (a *app) events(ctx context.Context, svc lifecycle.Service, id string, follow bool, to event.Sink) error {
	err := svc.Events(ctx, id, follow, func(e event.Event) error { to.Emit(e); return nil })
	if err != nil && ctx.Err() != nil {
		return &exitError{code: exitInterrupted} // no longer watched; nothing was stopped
	}
	return err
}

// latest returns the named operation, or the latest operation of the named cluster.
func (a *app) latest(ctx context.Context, svc lifecycle.Service, args []string) (string, error) {
	if len(args) > 0 {
		list, err := svc.Clusters(ctx)
		if err != nil {
			return "", err
		}
		if !recorded(list, args[0]) {
			return args[0], nil
		}
	}
	name, err := a.which(ctx, args)
	if err != nil {
		return "", err
	}
	list, err := svc.Operations(ctx, name)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", problem(idNoOperation, "", "cluster %s has no operations", name)
	}
	return list[0].Name, nil
}

// operationsAndClusters completes the argument of watch: an operation or a cluster.
func (a *app) operationsAndClusters(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	clusters, directive := a.clusterNames(cmd, args, begin)
	ids, more := a.operationIDs(cmd, args, begin)
	return append(clusters, ids...), directive | more
}

// operationIDs completes the ids of operations.
func (a *app) operationIDs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	svc, err := a.svc(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list, err := svc.Operations(cmd.Context(), "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []string
	for _, o := range list {
		ids = append(ids, fmt.Sprintf("%s\t%s %s", o.Name, o.Spec.Cluster, strings.ToLower(string(o.Status.Phase))))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
