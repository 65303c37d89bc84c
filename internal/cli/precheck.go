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

func (a *app) precheckCmd() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "precheck [-f FILE] [NAME]",
		Short: "Check hosts for problems",
		Long: `Checks all hosts of FILE or of a saved cluster, and reports all problems of all
hosts at once. Without FILE and without a saved cluster, checks this machine. The
command changes nothing. Exit code 2 means that there are problems. --ignore-check
ignores a finding.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			r, err := a.toCheck(ctx, file, args)
			if err != nil {
				return err
			}
			return a.prechecked(ctx, r)
		},
	}
	fileFlag(cmd, &file, "the cluster file; - is standard input")
	a.passFlags(cmd)
	return cmd
}

// toCheck returns a request for the cluster to check: for this machine, if no cluster
// is given or saved.
func (a *app) toCheck(ctx context.Context, file string, args []string) (lifecycle.Request, error) {
	r, err := a.request(ctx, lifecycle.Create, file, args)
	var list diag.List
	if errors.As(err, &list) && list[0].ID == idNoCluster {
		d, err := a.thisHost(ctx, "", "")
		if err != nil {
			return lifecycle.Request{}, err
		}
		return a.described(lifecycle.Create, d), nil
	}
	return r, err
}

// prechecked runs a precheck and shows its findings.
func (a *app) prechecked(ctx context.Context, r lifecycle.Request) error {
	list, err := a.precheck(ctx, r)
	if err != nil {
		return err
	}
	return a.findings(list)
}

func (a *app) precheck(ctx context.Context, r lifecycle.Request) (diag.List, error) {
	svc, err := a.svc(ctx)
	if err != nil {
		return nil, err
	}
	v := a.people(nil)
	defer v.Close()
	defer a.talk.through(v)()
	list, err := svc.Precheck(ctx, r, v)
	return list, refuse(err)
}

// findings shows the findings of a precheck. It returns an exitError if one is an error.
func (a *app) findings(list diag.List) error {
	if list == nil {
		list = diag.List{}
	}
	err := a.data(list, func(w io.Writer) error {
		view.Diagnostics(w, list, a.outStyle())
		problems, warnings := len(list.Errors()), len(list.Warnings())
		if problems+warnings == 0 {
			fmt.Fprintln(w, "No problems found.")
			return nil
		}
		fmt.Fprintf(w, "%s, %s.\n", count(problems, "problem"), count(warnings, "warning"))
		return nil
	})
	if err == nil && len(list.Errors()) > 0 {
		return &exitError{code: exitRefused}
	}
	return err
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
