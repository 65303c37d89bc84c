package local_test

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/local"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// TestConnect_NeedsRoot: without root, the error names the reason and the remedy.
func TestConnect_NeedsRoot(t *testing.T) {
	requireroot.Need(t, "being another user for a moment")
	done := make(chan error)
	go func() { // its thread ends with it, which is another user's by then
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 12345, 12345, 12345); errno != 0 {
			done <- errno
			return
		}
		_, err := (&local.Dialer{}).Connect(t.Context(), v1alpha1.Host{Name: "here"}, remote.Options{})
		done <- err
	}()
	err := <-done
	var e *remote.Error
	if !errors.As(err, &e) || e.Reason != remote.SudoFailed || e.Remedy != "run slipway with sudo" {
		t.Errorf("without root: %v", err)
	}
}
