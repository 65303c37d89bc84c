// Package cli is the command line. It reads the user's request, calls package
// lifecycle, and shows the result. It changes only the user's own files itself.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/cli/sandboxcmd"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle"
)

// The exit codes.
const (
	exitDone        = 0
	exitFailed      = 1   // an operation failed and can be resumed
	exitRefused     = 2   // refused; nothing was changed
	exitPartial     = 3   // finished, with failed hosts
	exitChanges     = 4   // plan --exit-code or certs check found something to do
	exitLocked      = 5   // another operation is running on the cluster
	exitInterrupted = 130 // interrupted; can be resumed
)

// again is the time after a signal in which another one counts as an echo of it. sudo
// and terminals send such echoes.
const again = 500 * time.Millisecond

// An exitError ends the program with a code. If err is nil, everything has been
// reported already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// refuse marks an error as one that changed nothing.
func refuse(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitRefused, err: err}
}

// interrupted is the cause of a context that a signal has cancelled.
type interrupted struct{ signal os.Signal }

func (e *interrupted) Error() string {
	name := e.signal.String()
	if number, ok := e.signal.(syscall.Signal); ok {
		name = cmp.Or(unix.SignalName(number), name)
	}
	return "interrupted by " + name
}

// Main runs a command line (without the program's name) and returns the exit
// code. The first SIGINT, SIGTERM or SIGHUP stops cleanly. After a further one
// Main returns without waiting, while steps that must not be interrupted continue
// on their hosts.
func Main(ctx context.Context, args []string, s Streams, env Env, services NewService) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 4)
	env.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer env.StopNotify(signals)
	defer env.handOver(s.Err)()
	// Without this, a write to a pipe without a reader would end the program.
	pipe := make(chan os.Signal, 1)
	env.Notify(pipe, syscall.SIGPIPE)
	defer env.StopNotify(pipe)

	a := newApp(s, env, services)
	code := make(chan int, 1)
	go func() { code <- a.main(ctx, args) }()
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
				cancel(&interrupted{sig})
			case now.Sub(first) > again:
				leave(s.Err, a.working.Load())
				return exitInterrupted
			}
		}
	}
}

// main is Main without signals.
func (a *app) main(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	if p, rest := a.plugin(root, args); p != "" {
		return a.report(ctx, a.runPlugin(p, rest))
	}
	err := root.ExecuteContext(ctx)
	if err != nil && !a.began {
		err = a.usage(root, args, err)
	}
	return a.report(ctx, err)
}

// usage returns the error for a command line that could not be parsed.
func (a *app) usage(root *cobra.Command, args []string, err error) error {
	cmd, rest, findErr := root.Find(args)
	if findErr != nil || cmd == nil {
		cmd, rest = root, args
	}
	_ = a.begin(cmd) // the output format may have been parsed already
	if errors.As(err, new(diag.List)) {
		return err // it already has a hint
	}
	return misread(err, cmd, rest)
}

// misread returns cobra's error for a command line, with its suggestions, or with
// the commands that the user probably meant, as a hint.
func misread(err error, see *cobra.Command, args []string) error {
	message, near, _ := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	hint := "see: " + see.CommandPath() + " --help"
	first := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	if first >= 0 && strings.HasPrefix(message, "unknown command") {
		if commands := instead(see, args[first]); len(commands) > 0 {
			return problem(idUsage, "did you mean: "+strings.Join(commands, "; ")+"? "+hint, "%s", message)
		}
		if names := misspelled(see, args[first]); len(names) > 0 {
			return problem(idUsage, "did you mean "+strings.Join(names, " or ")+"? "+hint, "%s", message)
		}
	}
	if names := strings.Fields(near); len(names) > 0 {
		hint = "did you mean " + strings.Join(names, " or ") + "? " + hint
	}
	return problem(idUsage, hint, "%s", message)
}

// unread reports whether an error means that the reader of the output's pipe, such
// as head, has closed it.
func unread(err error) bool {
	var write *fs.PathError
	return errors.As(err, &write) && (write.Path == os.Stdout.Name() || write.Path == os.Stderr.Name()) && errors.Is(write, syscall.EPIPE)
}

// report prints an error and returns the exit code.
func (a *app) report(ctx context.Context, err error) int {
	if err == nil || unread(err) {
		return exitDone
	}
	code := codeOf(ctx, err)
	var program *sandboxcmd.ExitError
	var exit *exitError
	if errors.As(err, &program) || errors.As(err, &exit) && exit.err == nil {
		return code // already reported
	}
	a.explain(err, code)
	return code
}

// codeOf returns the exit code of an error.
func codeOf(ctx context.Context, err error) int {
	var (
		program *sandboxcmd.ExitError
		locked  *lifecycle.LockedError
		stale   *lifecycle.StaleError
		list    diag.List
		exit    *exitError
		stop    *interrupted
	)
	switch {
	case errors.As(err, &program):
		return program.Code
	case errors.As(err, &exit) && exit.err == nil:
		return exit.code
	case errors.As(err, &locked):
		return exitLocked
	case errors.As(err, &stop), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return exitInterrupted
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &list), errors.As(err, &stale), errors.Is(err, lifecycle.ErrNotFound):
		return exitRefused
	}
	return exitFailed
}

// A failureReport is an error as JSON or YAML.
type failureReport struct {
	Type        string    `json:"type"` // "error"
	ExitCode    int       `json:"exitCode"`
	Message     string    `json:"message"`
	Diagnostics diag.List `json:"diagnostics,omitempty"`
	Operation   string    `json:"operation,omitempty"` // the operation that holds the lock
	Difference  string    `json:"difference,omitempty"`
}

// explain prints an error: as text on stderr, and with -o json or yaml also on stdout.
func (a *app) explain(err error, code int) {
	rep := failureReport{Type: "error", ExitCode: code, Message: err.Error()}
	var (
		locked  *lifecycle.LockedError
		stale   *lifecycle.StaleError
		list    diag.List
		between *betweenError
	)
	switch {
	case errors.As(err, &list):
		rep.Diagnostics = list
	case errors.As(err, &locked):
		rep.Operation = locked.Operation
		hint := "to watch the operation: slipway operations watch " + locked.Operation + "; to stop it: slipway cancel " + locked.Cluster
		if locked.Elsewhere {
			hint = "watch or stop the operation on that manager; if that manager is gone, try again in a minute"
		}
		rep.Diagnostics = diag.List{{ID: idLocked, Severity: diag.Error, Message: locked.Error(), Hint: hint}}
	case errors.Is(err, lifecycle.ErrNotFound):
		const hint = "list clusters and operations: slipway get clusters; slipway operations list"
		rep.Diagnostics = diag.List{{ID: idNotFound, Severity: diag.Error, Message: err.Error(), Hint: hint}}
	case errors.As(err, &stale):
		rep.Difference = stale.Difference
		rep.Diagnostics = diag.List{{ID: idStale, Severity: diag.Error, Message: stale.Error()}}
		fmt.Fprint(a.Err, view.Visible(stale.Difference))
	}
	if errors.As(err, &between) {
		rep.Diagnostics = between.explained(rep.Diagnostics, code)
	}
	switch {
	case len(rep.Diagnostics) > 0:
		view.Diagnostics(a.Err, rep.Diagnostics, a.style())
	case code == exitInterrupted:
		fmt.Fprintln(a.Err, "Stopped; nothing was changed.")
	default:
		view.Diagnostics(a.Err, diag.List{{Message: err.Error()}}, a.style())
	}
	if a.format != view.Text {
		_ = view.Item(a.Out, a.format, rep) // the exit code also reports the error
	}
}

// leave reports that the program no longer waits for the operation on a cluster;
// cluster is nil without an operation. It does not wait for a reader that reads
// nothing.
func leave(w io.Writer, cluster *string) {
	said := make(chan struct{})
	go func() { // ends with the program at the latest: a write cannot be cancelled
		defer close(said)
		text := "\nNo longer waiting.\n"
		if cluster != nil {
			text += "Steps that must not be interrupted finish on their hosts.\nNext: slipway resume " + *cluster + "\n"
		}
		_, _ = io.WriteString(w, text) // the exit code also reports the interruption
	}()
	select {
	case <-said:
	case <-time.After(again):
	}
}

// Streams are the program's input and outputs: Out is for data, Err for messages.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Asks reports whether In and Err are terminals, so that a person can answer
	// questions.
	Asks bool
	// Colour reports whether Out is a terminal.
	Colour bool
	// Size returns the size of the terminal at Err; nil if Err is not a terminal.
	Size func() (columns, rows int)
}
