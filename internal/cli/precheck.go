package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle"
)

// precheckCommand holds what "precheck" needs.
type precheckCommand struct {
	prechecker *prechecker
	files      *clusterFiles
	clusters   *clusterChooser
	subjects   *subjectReader
}

func newPrecheckCommand(c precheckCommand) *cobra.Command {
	var file string
	var options lifecycle.Options
	cmd := &cobra.Command{
		Use:   "precheck [-f FILE] [NAME]",
		Short: "Check hosts for problems",
		Long: `Checks all hosts of FILE or of a saved cluster, and reports all problems of all
hosts at once. Without FILE and without a saved cluster, checks this machine. The
command changes nothing. Exit code 2 means that there are problems. --ignore-check
ignores a finding.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			subject, err := c.readSubjectOrThisHost(ctx, file, args)
			if err != nil {
				return err
			}
			return c.prechecker.checkAndReport(ctx, lifecycle.CreateRequest{Subject: subject, Options: options})
		},
	}
	addFileFlag(cmd, &file, "the cluster file; - is standard input")
	addIgnoreFlags(cmd, &options)
	return cmd
}

// readSubjectOrThisHost returns the cluster to check: a cluster of this machine, if no
// cluster is given or saved.
func (c precheckCommand) readSubjectOrThisHost(ctx context.Context, file string, args []string) (lifecycle.Subject, error) {
	subject, err := c.subjects.readSubject(ctx, file, args)
	var list diag.List
	if !errors.As(err, &list) || list[0].ID != idNoCluster {
		return subject, err
	}
	d, err := c.files.describeThisHost(ctx, "", "")
	if err != nil {
		return lifecycle.Subject{}, err
	}
	return d.subject(), nil
}

// A prechecker checks hosts and shows what it found.
type prechecker struct {
	*console
	open opener[inspector]
}

// checkAndReport runs a precheck and shows its findings.
func (p *prechecker) checkAndReport(ctx context.Context, r lifecycle.Request) error {
	list, err := p.runPrecheck(ctx, r)
	if err != nil {
		return err
	}
	return p.showFindings(list)
}

func (p *prechecker) runPrecheck(ctx context.Context, r lifecycle.Request) (diag.List, error) {
	svc, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	v := p.newHumanView(nil)
	defer v.Close()
	defer p.logs.redirect(v)()
	list, err := svc.Precheck(ctx, r, v)
	return list, markRefused(err)
}

// showFindings shows the findings of a precheck. It returns an exitError if one is an
// error.
func (p *prechecker) showFindings(list diag.List) error {
	if list == nil {
		list = diag.List{}
	}
	err := p.writeResult(list, func(w io.Writer) error {
		view.WriteDiagnostics(w, list, p.outStyle())
		problems, warnings := len(list.Errors()), len(list.Warnings())
		if problems+warnings == 0 {
			fmt.Fprintln(w, "No problems found.")
			return nil
		}
		fmt.Fprintf(w, "%s, %s.\n", countNoun(problems, "problem"), countNoun(warnings, "warning"))
		return nil
	})
	if err == nil && len(list.Errors()) > 0 {
		return &exitError{code: exitRefused}
	}
	return err
}

func countNoun(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
