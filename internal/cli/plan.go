package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/lifecycle"
)

// planCommand holds what "plan" needs.
type planCommand struct {
	*workspace
	operationCommand
}

func newPlanCommand(c planCommand) *cobra.Command {
	var (
		file, out string
		exitCode  bool
		r         lifecycle.ApplyRequest
	)
	cmd := &cobra.Command{
		Use:   "plan [-f FILE] [NAME]",
		Short: "Show what would change",
		Long: `Shows what applying FILE would change, and changes nothing. Without a file, shows
how far the hosts have drifted from the cluster's saved state.

To apply a plan that you saved with --out, run: slipway apply -f PLAN`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if r.Subject, err = c.subjects.readSubject(cmd.Context(), file, args); err != nil {
				return err
			}
			// Only the plan goes to stdout; progress goes to stderr.
			p, err := c.runner.preparePlan(cmd.Context(), prepareRequest(r), c.newHumanView(nil))
			if err != nil {
				return err
			}
			return errors.Join(c.showPlan(p, out, exitCode), p.Close())
		},
	}
	addFileFlag(cmd, &file, "the cluster file; - is standard input")
	addIgnoreFlags(cmd, &r.Options)
	cmd.Flags().StringVar(&out, "out", "", "save the plan to this `file`")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with code 4 if the plan has changes")
	return cmd
}

func (c planCommand) showPlan(prepared lifecycle.Prepared, out string, exitCode bool) error {
	p := prepared.Plan()
	text, err := p.Encode()
	if err != nil {
		return err
	}
	if out != "" {
		if err := prepared.Savable(); err != nil {
			return err
		}
	}
	switch c.format {
	case view.Text:
		err = view.WritePlan(c.Out, p, false, c.outStyle())
	case view.JSON:
		_, err = c.Out.Write(text)
	default:
		err = view.WriteData(c.Out, c.format, p)
	}
	if err := ignoreReaderGone(err); err != nil {
		return err
	}
	if out != "" {
		if err := c.writeNewFile(out, text, 0o600); err != nil {
			return err
		}
		c.printMessage("Saved the plan to %s.\nNext: slipway apply -f %s", out, out)
	}
	switch {
	case len(prepared.Failures()) > 0: // the plan does not cover failed hosts
		return &exitError{code: exitPartial}
	case exitCode && !p.IsEmpty():
		return &exitError{code: exitChanges}
	}
	return nil
}
