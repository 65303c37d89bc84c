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
		Short: "Look for everything that would keep a cluster from working",
		Long: `Looks at all hosts of FILE, or of a recorded cluster, or, if there is neither,
at this machine, and reports all problems of all hosts at once. It changes
nothing. Exit code 2 says that there are problems; a finding is passed over
with --ignore-check.`,
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

// toCheck is the cluster to look at: this machine, if none is named or
// recorded.
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

// prechecked shows what a precheck finds.
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

// findings shows what a precheck found.
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
