package cli

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
)

// TestIsReported_OnlyIfAFailureShowsTheError: the cause of a failed operation, such as a
// full disk of the manager, is shown once.
func TestIsReported_OnlyIfAFailureShowsTheError(t *testing.T) {
	full := diag.Diagnostic{
		ID: "records-unwritable", Severity: diag.Error,
		Message: "writing journal.jsonl: no space left on device", Hint: "make room",
	}
	failed := lifecycle.HostFailure{Title: "run operation", Failure: event.Failure{Reason: full.ID, Message: full.Message, Remedy: full.Hint}}
	for _, tt := range []struct {
		name     string
		failures []lifecycle.HostFailure
		err      error
		want     bool
	}{
		{"error is a failure", []lifecycle.HostFailure{failed}, fmt.Errorf("running: %w", diag.List{full}), true},
		{"error is not a failure", nil, diag.List{full}, false},
		{"one of two errors is a failure", []lifecycle.HostFailure{failed}, diag.List{full, {ID: "x", Message: "y"}}, false},
		{"error without a diagnostic", []lifecycle.HostFailure{failed}, errors.New(full.Message), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := isReported(&lifecycle.Result{Failures: tt.failures}, tt.err); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestIsReaderGone_OnlyForOwnOutputs(t *testing.T) {
	r, w, err := os.Pipe()
	if err == nil {
		err = r.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Dup(int(w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	out := os.NewFile(uintptr(fd), os.Stdout.Name())
	defer w.Close()
	defer out.Close()
	if _, err := w.Write([]byte("x")); err == nil || isReaderGone(err) {
		t.Errorf("the input of another program: %v", err)
	}
	if _, err := out.Write([]byte("x")); !isReaderGone(fmt.Errorf("writing the output: %w", err)) {
		t.Errorf("a pipe without a reader: %v", err)
	}
	for _, err := range []error{nil, syscall.EPIPE, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}} {
		if isReaderGone(err) {
			t.Errorf("%v is taken for a reader that has left", err)
		}
	}
}

func TestInterruptError_NamesTheSignal(t *testing.T) {
	if got, want := (&interruptError{os.Interrupt}).Error(), "interrupted by SIGINT"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
