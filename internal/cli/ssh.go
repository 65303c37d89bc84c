package cli

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/remote"
)

func (a *app) sshCmd() *cobra.Command {
	return program.WordsOnly(&cobra.Command{
		Use: "ssh [CLUSTER@]HOST [-- COMMAND [ARG...]]", Short: "Log in to a host, as Slipway does",
		Long: `Logs in to a host with the cluster's own settings: user, port, keys or passwords,
bastion, and the host keys that Slipway knows. Without a command it is the login
shell. The exit code is the command's. When the host has not answered for half a
minute the connection is closed. On a terminal, ~. at the beginning of a line closes
it at once (exit code 255), as with ssh.`,
		Example: `  slipway ssh w1
  slipway ssh prod@cp1 -- sudo journalctl -u kubelet -f`,
		Args: cobra.ArbitraryArgs, ValidArgsFunction: a.selectorNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash < 0 {
				dash = len(args)
			}
			if dash != 1 {
				return problem(idUsage, "slipway ssh [CLUSTER@]HOST -- COMMAND", "one host comes first, and a command after --")
			}
			return a.login(cmd.Context(), args[0], args[1:])
		},
	})
}

func (a *app) login(ctx context.Context, selector string, argv []string) error {
	svc, targets, err := a.aimed(ctx, selector)
	if err != nil {
		return err
	}
	if len(targets) != 1 {
		return problem(idUsage, "name one of them; for all at once: slipway exec "+selector+" -- COMMAND", "%s means %d hosts", selector, len(targets))
	}
	sh := remote.Shell{Argv: argv, In: a.In, Out: a.Out, Err: a.Err}
	tty, ok := a.In.(*os.File)
	if ok && view.IsTerminal(tty) && a.Colour { // both ends of it are a terminal
		back, err := a.terminal(tty, &sh)
		if err != nil {
			return err
		}
		defer back()
	}
	code, err := svc.Login(ctx, targets[0], sh)
	if err == nil && code != 0 {
		return &exitError{code: code}
	}
	return err
}

// terminal makes the person's terminal raw, and has the host follow its size.
func (a *app) terminal(tty *os.File, sh *remote.Shell) (back func(), err error) {
	before, err := term.MakeRaw(int(tty.Fd()))
	if err != nil {
		return nil, fmt.Errorf("making the terminal raw: %w", err)
	}
	columns, rows := view.TerminalSize(tty)
	sizes := make(chan [2]int, 1)
	changed := make(chan os.Signal, 1)
	a.env.Notify(changed, syscall.SIGWINCH)
	over := make(chan struct{})
	go func() {
		for {
			select {
			case <-changed:
				c, r := view.TerminalSize(tty)
				select {
				case sizes <- [2]int{c, r}:
				default: // the last one has not been told yet
				}
			case <-over:
				return
			}
		}
	}()
	name := a.env.Getenv("TERM")
	if name == "" {
		name = "dumb"
	}
	sh.Terminal = &remote.Terminal{Name: name, Columns: columns, Rows: rows, Resized: sizes}
	return func() {
		close(over)
		a.env.StopNotify(changed)
		_ = term.Restore(int(tty.Fd()), before) // gone with its window, at worst
	}, nil
}
