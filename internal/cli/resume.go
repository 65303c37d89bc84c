package cli

import (
	"context"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
)

func newResumeCommand(c operationCommand) *cobra.Command {
	var (
		file, pause string
		r           lifecycle.ResumeRequest
	)
	cmd := &cobra.Command{
		Use: "resume [-f FILE] [NAME]", Aliases: []string{"retry"},
		Short: "Resume a cluster's unfinished operation",
		Long: `Resumes the latest operation that failed or was interrupted, as it was planned
and confirmed. If the cluster file has changed since then, the command refuses the
file with -f, and reports the change without -f. Use apply for a changed file.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if r.Subject, err = c.subjects.readSubject(cmd.Context(), file, args); err != nil {
				return err
			}
			if r.PauseAfter, err = parsePausePoint(pause); err != nil {
				return err
			}
			do := func(ctx context.Context, svc planner, progress event.Sink) (lifecycle.Prepared, error) {
				return svc.PrepareResume(ctx, r, progress)
			}
			return c.runner.runOperation(cmd.Context(), operation{prepare: do, file: file, isConfirmed: true})
		},
	}
	addFileFlag(cmd, &file, "the cluster file, which must not have changed since the operation began; - is standard input")
	addDrainFlags(cmd, &r.Removal, 0)
	addPauseFlag(cmd, &pause)
	addOptionFlags(cmd, &r.Options)
	return cmd
}
