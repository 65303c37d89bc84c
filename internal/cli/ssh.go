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

func newSSHCommand(c hostCommand) *cobra.Command {
	return program.MarkTextOnly(&cobra.Command{
		Use: "ssh [CLUSTER@]HOST [-- COMMAND [ARG...]]", Short: "Log in to a host",
		Long: `Logs in to a host with the settings of its cluster: user, port, keys or passwords,
bastion, and the host keys that Slipway knows. Without a command, starts the login
shell. "slipway ssh" ends with the exit code of the command. If the host does not
respond for 30 seconds, the connection is closed. On a terminal, ~. at the beginning of
a line closes the connection immediately (exit code 255), as with ssh.`,
		Example: `  slipway ssh w1
  slipway ssh prod@cp1 -- sudo journalctl -u kubelet -f`,
		Args: cobra.ArbitraryArgs, ValidArgsFunction: c.selector.completeSelector,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash < 0 {
				dash = len(args)
			}
			if dash != 1 {
				return newProblem(idUsage, "slipway ssh [CLUSTER@]HOST -- COMMAND", "expected one host, and an optional command after --")
			}
			return c.loginToHost(cmd.Context(), args[0], args[1:])
		},
	})
}

func (c hostCommand) loginToHost(ctx context.Context, selector string, argv []string) error {
	svc, targets, err := c.selector.selectHosts(ctx, selector)
	if err != nil {
		return err
	}
	if len(targets) != 1 {
		return newProblem(idUsage, "give one of these hosts; to run a command on all: slipway exec "+selector+" -- COMMAND",
			"%s selects %d hosts", selector, len(targets))
	}
	sh := remote.Shell{Argv: argv, In: c.In, Out: c.Out, Err: c.Err}
	tty, ok := c.In.(*os.File)
	if ok && view.IsTerminal(tty) && c.OutIsTerminal { // input and output are a terminal
		back, err := c.makeTerminalRaw(tty, &sh)
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

// makeTerminalRaw sets the user's terminal to raw mode and sends its size to the host.
// The returned function restores the terminal.
func (c hostCommand) makeTerminalRaw(tty *os.File, sh *remote.Shell) (back func(), err error) {
	before, err := term.MakeRaw(int(tty.Fd()))
	if err != nil {
		return nil, fmt.Errorf("making the terminal raw: %w", err)
	}
	columns, rows := view.TerminalSize(tty)
	sizes := make(chan [2]int, 1)
	changed := make(chan os.Signal, 1)
	c.env.Notify(changed, syscall.SIGWINCH)
	over := make(chan struct{})
	go func() {
		for {
			select {
			case <-changed:
				c, r := view.TerminalSize(tty)
				select {
				case sizes <- [2]int{c, r}:
				default: // the previous size has not been sent yet
				}
			case <-over:
				return
			}
		}
	}()
	name := c.env.Getenv("TERM")
	if name == "" {
		name = "dumb"
	}
	sh.Terminal = &remote.Terminal{Name: name, Columns: columns, Rows: rows, Resized: sizes}
	return func() {
		close(over)
		c.env.StopNotify(changed)
		_ = term.Restore(int(tty.Fd()), before) // fails only if the terminal is closed
	}, nil
}
