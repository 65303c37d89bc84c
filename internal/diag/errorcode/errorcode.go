// Package errorcode returns the error code of the failure that ended an operation.
package errorcode

import (
	"errors"
	"net"
	"os"
	"slices"
	"syscall"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/op"
)

// ofReason has the codes of reasons that are not message ids. Most reasons have none.
var ofReason = map[string]v1alpha1.ErrorCode{
	op.ReasonRegistryLogin: v1alpha1.ErrorCredentials,

	"DiskFull":             v1alpha1.ErrorCapacity,
	op.ReasonScratchMemory: v1alpha1.ErrorCapacity,

	"Busy":            v1alpha1.ErrorConflict,
	"Fenced":          v1alpha1.ErrorConflict,
	"LockLost":        v1alpha1.ErrorConflict,
	"PlanStale":       v1alpha1.ErrorConflict,
	op.ReasonEtcdBusy: v1alpha1.ErrorConflict,
}

// A Coded error knows its code.
type Coded interface {
	error
	ErrorCode() v1alpha1.ErrorCode
}

// Of returns the code of a failure with a reason: the id of a message, or another word. err
// is the error behind it, nil if only the reason is known. The reason decides if it has a
// code. The code of all other failures is Internal.
func Of(reason string, err error) v1alpha1.ErrorCode {
	if code, ok := ofID[reason]; ok {
		return code
	}
	if code, ok := ofReason[reason]; ok {
		return code
	}
	var coded Coded
	switch {
	case errors.As(err, &coded):
		return coded.ErrorCode()
	case isOneOf(err, syscall.ENOSPC, syscall.EDQUOT):
		return v1alpha1.ErrorCapacity
	case isUnreachable(err):
		return v1alpha1.ErrorUnreachable
	}
	return v1alpha1.ErrorInternal
}

// isUnreachable reports whether another machine did not respond. The end of a context is not a
// sign of this.
func isUnreachable(err error) bool {
	var (
		network *net.OpError
		name    *net.DNSError
	)
	return isOneOf(err, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EHOSTUNREACH, syscall.EHOSTDOWN,
		syscall.ENETUNREACH, syscall.ETIMEDOUT, os.ErrDeadlineExceeded) ||
		errors.As(err, &network) && network.Timeout() || errors.As(err, &name)
}

func isOneOf(err error, kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}
