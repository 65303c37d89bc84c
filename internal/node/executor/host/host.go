//go:build linux

package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/lock"
	"slipway.dev/slipway/internal/node/op"
)

// DefaultState is Slipway's state directory on a host.
const DefaultState = "/var/lib/slipway"

// DefaultPath is the search path for programs, whatever the environment of the session
// that started the helper.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// A Host is this host during one list of operations: its files, programs, state and
// ledger.
type Host struct {
	// Root is "/"; tests use another directory for files.
	Root string
	// State is the path of the state directory on disk.
	State string
	// SearchPath is the search path for programs.
	SearchPath string
	// Blobs fetches content.
	Blobs BlobFetcher
	// Disk is the zero value, except in tests of crashes.
	Disk atomicfile.Disk
	// Lock is this host's copy of the cluster lock.
	Lock *lock.Store
	// EtcdTime limits how long etcd can take to elect a leader.
	EtcdTime time.Duration
	// KubeletTime is how long a kubelet can take to start a changed static pod.
	KubeletTime time.Duration
	// Batch has the operations, and Index is the current one.
	Batch Batch
	Index int
	// Planning reports that nothing is applied.
	Planning bool
	// Ledger is opened when it is first needed under the apply lock.
	Ledger *ledger.Ledger
	// OperationOf returns the executor of an operation.
	OperationOf func(op.Op) (Operation, error)
	// Emit, if not nil, is called with progress of the operation with an index.
	Emit func(int, Progress)
	// telling prevents concurrent calls of Emit.
	telling sync.Mutex
	// Noted reports whether the responding services were recorded before the first
	// change.
	Noted bool
	// Predicted has the states that earlier operations would give to paths; "" is a
	// change with an unknown result.
	Predicted map[string]string
}

// A BlobFetcher gets content from the manager, or from hosts that the manager names.
type BlobFetcher interface {
	// FetchBlob writes the content of b from offset on to w, all of it or an error. An
	// error of w ends it.
	FetchBlob(ctx context.Context, b op.Blob, offset int64, w io.Writer) (Fetched, error)
	// MakeRoom drops content that is held for other hosts, because the disk is full.
	MakeRoom()
}

// Fetched is completely fetched content.
type Fetched interface {
	// Shared reports whether some of it came from other hosts.
	Shared() bool
	// Verified reports the path of the content, so that other hosts can get it; "" means
	// that the content was wrong.
	Verified(path string)
	io.Closer
}

// A Batch is a list of operations to apply, and their owner.
type Batch struct {
	Operation, Step, Cluster string
	// Fence is the fencing number of the cluster lock; 0 is never rejected.
	Fence uint64
	Ops   op.List
}

// Progress is a report while an operation runs.
type Progress struct {
	Output []byte
	// Done and Total are the bytes of a transfer, if Total is not 0.
	Done, Total int64
}

// Report passes progress on.
func (h *Host) Report(p Progress) {
	if h.Emit == nil {
		return
	}
	h.telling.Lock()
	defer h.telling.Unlock()
	h.Emit(h.Index, p)
}

// DiskPath returns the path on disk of a path of the host.
func (h *Host) DiskPath(p string) string { return filepath.Join(h.Root, p) }

// StatePath returns a path below the state directory.
func (h *Host) StatePath(elem ...string) string {
	return filepath.Join(append([]string{h.State}, elem...)...)
}

// FailureOf converts an error for a result.
func FailureOf(err error) *op.Error {
	var e *op.Error
	var fence *lock.FenceError
	switch {
	case errors.As(err, &fence):
		return &op.Error{Reason: op.IDFenceUnreadable, Message: err.Error()}
	case errors.As(err, &e):
		out := *e
		out.Message = err.Error()
		return &out
	case errors.Is(err, context.DeadlineExceeded):
		return &op.Error{Reason: "Timeout", Message: err.Error()}
	case errors.Is(err, context.Canceled):
		return &op.Error{Reason: "Interrupted", Message: err.Error()}
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return &op.Error{Reason: "DiskFull", Message: err.Error()}
	case errors.Is(err, os.ErrPermission), errors.Is(err, unix.EROFS):
		return &op.Error{Reason: "NotPermitted", Message: err.Error()}
	}
	return &op.Error{Reason: "Failed", Message: err.Error()}
}

// Invalid returns the error for an operation that is not valid.
func Invalid(format string, args ...any) error {
	return &op.Error{Reason: "Invalid", Message: fmt.Sprintf(format, args...)}
}

// WriteRecord writes a record below the state directory.
func (h *Host) WriteRecord(path string, v any) error {
	raw, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	if err := h.Disk.MkdirAll(filepath.Dir(path), atomicfile.Meta{Mode: 0o700}); err != nil {
		return err
	}
	return h.Disk.ReplaceFile(path, strings.NewReader(string(raw)+"\n"), atomicfile.Meta{Mode: 0o600})
}

// ApplyLock is the file below the state directory whose flock one helper at a time holds
// while it changes the host.
const ApplyLock = "apply.lock"
