// Package cli is the command line. It reads the user's request, calls package
// lifecycle, and shows the result. It changes only the user's own files itself.
package cli

import (
	"context"
	"io"
	"os"
	"syscall"
	"time"
)

// signalEchoWindow is the time after a signal in which another one counts as an echo of
// it. sudo and terminals send such echoes.
const signalEchoWindow = 500 * time.Millisecond

// Main runs a command line (without the program's name) and returns the exit
// code. The first SIGINT, SIGTERM or SIGHUP stops cleanly. After a further one
// Main returns without waiting, while steps that must not be interrupted continue
// on their hosts.
func Main(ctx context.Context, args []string, s Streams, env Env, create NewService) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 4)
	env.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer env.StopNotify(signals)
	defer env.newCacheHandover(s.Err)()
	// Without this, a write to a pipe without a reader would end the program.
	pipe := make(chan os.Signal, 1)
	env.Notify(pipe, syscall.SIGPIPE)
	defer env.StopNotify(pipe)

	a := newApp(s, env, create)
	code := make(chan int, 1)
	go func() { code <- a.runCommandLine(ctx, args) }()
	var first time.Time
	for {
		select {
		case c := <-code:
			return c
		case sig := <-signals:
			now := env.Now()
			switch {
			case first.IsZero():
				first = now
				cancel(&interruptError{sig})
			case now.Sub(first) > signalEchoWindow:
				reportNotWaiting(s.Err, a.runner.working.Load())
				return exitInterrupted
			}
		}
	}
}

// runCommandLine is Main without signals.
func (a *app) runCommandLine(ctx context.Context, args []string) int {
	root := a.newRootCommand()
	root.SetArgs(args)
	if p, rest := a.plugins.findPlugin(root, args); p != "" {
		return a.reportError(ctx, a.plugins.runPlugin(p, rest))
	}
	err := root.ExecuteContext(ctx)
	if err != nil && !a.hasBegun {
		err = a.explainUsageError(root, args, err)
	}
	return a.reportError(ctx, err)
}

// reportNotWaiting reports that the program no longer waits for the operation on a
// cluster; cluster is nil without an operation. It does not wait for a reader that reads
// nothing.
func reportNotWaiting(w io.Writer, cluster *string) {
	printed := make(chan struct{})
	go func() { // ends with the program at the latest: a write cannot be cancelled
		defer close(printed)
		text := "\nNo longer waiting.\n"
		if cluster != nil {
			text += "Steps that must not be interrupted finish on their hosts.\nNext: slipway resume " + *cluster + "\n"
		}
		_, _ = io.WriteString(w, text) // the exit code also reports the interruption
	}()
	select {
	case <-printed:
	case <-time.After(signalEchoWindow):
	}
}

// Streams are the program's input and outputs: Out is for data, Err for messages.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// CanAsk reports whether In and Err are terminals, so that a person can answer
	// questions.
	CanAsk bool
	// OutIsTerminal reports whether Out is a terminal.
	OutIsTerminal bool
	// Size returns the size of the terminal at Err; nil if Err is not a terminal.
	Size func() (columns, rows int)
}
