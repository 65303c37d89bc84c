package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/lifecycle/hostexec"
)

func newExecCommand(c hostCommand) *cobra.Command {
	var (
		w            workFlags
		shell, stdin bool
	)
	cmd := &cobra.Command{
		Use: "exec SELECTOR -- PROGRAM [ARG...]", Short: "Run a program on hosts",
		Long: `Runs a program on all selected hosts in parallel. The arguments are passed to the
program unchanged, without a shell, except with --shell.

` + selectorHelp + `

The output of one host is printed unchanged. For several hosts, each line begins
with the host's name and " | ". A line longer than 64 KiB continues on the next line,
which has " + " instead. With -o json there is one line for each host; output that is
not UTF-8 is encoded as base64, and the field "encoding" is "base64". Exit code 3 means
that the program failed on a host, or that a host was not reachable.`,
		Example: `  slipway exec role=worker -- uptime
  slipway exec prod@all,lab@all --sudo -- systemctl is-active kubelet
  slipway exec 'db-*' --shell -- 'df -h / | tail -1'
  slipway exec w1 --stdin --sudo -- tee /etc/motd < motd`,
		Args: cobra.ArbitraryArgs, ValidArgsFunction: c.selector.completeSelector,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return newProblem(idUsage, "slipway exec SELECTOR -- PROGRAM [ARG...]", "expected one selector before --, and a program after it")
			}
			p := hostexec.Program{Argv: args[1:]}
			if shell {
				p.Argv = []string{"/bin/sh", "-c", strings.Join(args[1:], " ")}
			}
			if stdin {
				p.In = c.In
			}
			return c.runProgram(cmd.Context(), args[0], w, p)
		},
	}
	w.addTo(cmd)
	cmd.Flags().BoolVar(&shell, "shell", false, "run the arguments as a command of /bin/sh on the host")
	cmd.Flags().BoolVarP(&stdin, "stdin", "i", false, "pass standard input to the program; only for one host")
	return cmd
}

func (c hostCommand) runProgram(ctx context.Context, selector string, flags workFlags, p hostexec.Program) error {
	svc, targets, err := c.selector.selectHosts(ctx, selector)
	if err != nil {
		return err
	}
	w, err := flags.newWork(targets)
	if err != nil {
		return err
	}
	var finish func()
	out := &errorKeeper{w: c.Out}
	p.Output, w.Done, finish = c.newHostOutputs(out, targets)
	results, err := svc.Exec(ctx, w, p)
	finish()
	if err != nil {
		return err
	}
	return out.firstError(c.reportHostResults(ctx, targets, results))
}
