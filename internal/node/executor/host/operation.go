//go:build linux

package host

import (
	"context"

	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// An Operation executes one node operation on this host. An operation that changes the
// host is also a Changer, one with paths a PathUser, and one that can be reverted a
// Reverter.
type Operation interface {
	// Check compares the host with the operation. It only reads.
	Check(ctx context.Context, h *Host) (CheckResult, error)
}

// A Changer is an operation that does not only read.
type Changer interface {
	// Apply makes the change that Check found, and can be repeated. It is called under
	// the apply lock, except for op.Wait. res has the result of the check.
	Apply(ctx context.Context, h *Host, res *op.Result) error
}

// A PathUser is an operation with paths that must be clean and absolute.
type PathUser interface {
	Paths() []string
}

// A Reverter is an operation whose changes can be reverted.
type Reverter interface {
	// LedgerEntries returns the subjects that Apply saves in the ledger. ok is false if
	// they are not known before: the changes could be reverted as unneeded.
	LedgerEntries() (entries []Subject, ok bool)
}

// CheckResult is the result of a check.
type CheckResult struct {
	// Change describes the change in one line; "" if there is none.
	Change string
	Diff   string
	Output []byte
	// Missing and Secret are as in op.Result.
	Missing, Secret bool
	// Wrote has the resulting states of paths.
	Wrote map[string]string
}

// StateOf returns the state of a path, now or after the earlier operations.
func (h *Host) StateOf(path string) (string, error) {
	if state, ok := h.Predicted[path]; ok {
		return state, nil
	}
	return ledger.PathState(h.DiskPath(path))
}

// A Subject is the subject of a ledger entry.
type Subject struct {
	Kind ledger.Kind
	Key  string
}
