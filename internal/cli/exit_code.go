package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/cli/sandboxcmd"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
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

// markRefused marks an error as one that changed nothing.
func markRefused(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitRefused, err: err}
}

// interruptError is the cause of a context that a signal has cancelled.
type interruptError struct{ signal os.Signal }

func (e *interruptError) Error() string {
	name := e.signal.String()
	if number, ok := e.signal.(syscall.Signal); ok {
		name = cmp.Or(unix.SignalName(number), name)
	}
	return "interrupted by " + name
}

// exitCodeForError returns the exit code of an error.
func exitCodeForError(ctx context.Context, err error) int {
	var (
		program *sandboxcmd.ExitError
		locked  *lifecycle.LockedError
		stale   *lifecycle.StaleError
		list    diag.List
		exit    *exitError
		stop    *interruptError
		cancel  *savedstate.CancelledError
	)
	switch {
	case errors.As(err, &program):
		return program.Code
	case errors.As(err, &exit) && exit.err == nil:
		return exit.code
	case errors.As(err, &locked):
		return exitLocked
	case errors.As(err, &stop), errors.As(err, &cancel), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return exitInterrupted
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &list), errors.As(err, &stale), errors.Is(err, savedstate.ErrNotFound):
		return exitRefused
	}
	return exitFailed
}

// exitCodeForOutcome returns the exit code of an operation's outcome.
func exitCodeForOutcome(o event.Outcome) int {
	switch o {
	case event.Succeeded, event.Paused:
		return exitDone
	case event.Partial:
		return exitPartial
	case event.Cancelled:
		return exitInterrupted
	}
	return exitFailed
}

// isReaderGone reports whether an error means that the reader of the output's pipe, such
// as head, has closed it.
func isReaderGone(err error) bool {
	var write *fs.PathError
	return errors.As(err, &write) && (write.Path == os.Stdout.Name() || write.Path == os.Stderr.Name()) && errors.Is(write, syscall.EPIPE)
}

// ignoreReaderGone returns an error of writing, or nil if the reader has closed the
// output.
func ignoreReaderGone(err error) error {
	if isReaderGone(err) {
		return nil
	}
	return err
}
