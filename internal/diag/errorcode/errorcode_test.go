package errorcode_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag/errorcode"
)

// codedError is an error that knows its code.
type codedError v1alpha1.ErrorCode

func (e codedError) Error() string { return "failed" }

func (e codedError) ErrorCode() v1alpha1.ErrorCode { return v1alpha1.ErrorCode(e) }

func TestOf_ReturnsCode(t *testing.T) {
	dial := func(why error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", why)}
	}
	for _, tc := range []struct {
		name, why, reason string
		err               error
		want              v1alpha1.ErrorCode
	}{
		{"id", "the table has it", "host-unreachable", nil, v1alpha1.ErrorUnreachable},
		{"id before error", "the id is more exact", "ssh-auth-failed", dial(syscall.ECONNREFUSED), v1alpha1.ErrorCredentials},
		{"reason of a host", "it is a well-known word", "DiskFull", errors.New("no space"), v1alpha1.ErrorCapacity},
		{"other manager", "its fencing number is higher", "Fenced", nil, v1alpha1.ErrorConflict},
		{"registry", "it refused the login", "RegistryLogin", nil, v1alpha1.ErrorCredentials},
		{"time limit", "a program on the host was slow", "Timeout", context.DeadlineExceeded, v1alpha1.ErrorInternal},
		{"time limit of a connection", "the host did not respond", "Timeout", dial(syscall.ETIMEDOUT), v1alpha1.ErrorUnreachable},
		{"unknown reason", "the program failed", "CommandFailed", nil, v1alpha1.ErrorInternal},
		{"no reason", "nothing is known", "", nil, v1alpha1.ErrorInternal},
		{"coded error", "it knows its code", "Error", fmt.Errorf("x: %w", codedError(v1alpha1.ErrorConflict)), v1alpha1.ErrorConflict},
		{"full disk", "of this machine", "Error", &fs.PathError{Op: "write", Err: syscall.ENOSPC}, v1alpha1.ErrorCapacity},
		{"quota", "of the user", "Error", syscall.EDQUOT, v1alpha1.ErrorCapacity},
		{"refused connection", "no program listens", "Error", fmt.Errorf("x: %w", dial(syscall.ECONNREFUSED)), v1alpha1.ErrorUnreachable},
		{"no route", "the network has none", "Error", dial(syscall.EHOSTUNREACH), v1alpha1.ErrorUnreachable},
		{"slow connection", "it timed out", "Error", &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, v1alpha1.ErrorUnreachable},
		{"unknown name", "DNS does not have it", "Error", &net.DNSError{Name: "w9", IsNotFound: true}, v1alpha1.ErrorUnreachable},
		{"end of a context", "it does not tell what was slow", "Error", context.DeadlineExceeded, v1alpha1.ErrorInternal},
		{"closed connection", "the program itself closed it", "Error", net.ErrClosed, v1alpha1.ErrorInternal},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := errorcode.Of(tc.reason, tc.err); got != tc.want {
				t.Errorf("%s, want %s: %s", got, tc.want, tc.why)
			}
		})
	}
}
