//go:build linux

package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// A Runner executes operations on this host. One batch runs at a time; the lock's methods
// can be called concurrently.
type Runner struct {
	// Root is "/"; tests use another directory for files.
	Root string
	// State is the path of the state directory on disk; "" means DefaultState.
	State string
	// Path is the search path for programs; "" means DefaultPath.
	Path string
	// Blobs fetches content.
	Blobs BlobFetcher

	// disk is the zero value, except in tests of crashes.
	disk atomicfile.Disk
	// patience is displaceAfter, except in tests.
	patience time.Duration
	// etcdTime is etcdTime, except in tests.
	etcdTime time.Duration
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

// Check reports what an apply would change, with one result for each operation in order.
// It only reads. Later operations see the future results of earlier ones in the list: a
// unit needs a restart if its file would change.
func (r *Runner) Check(ctx context.Context, ops op.List) []op.Result {
	results := make([]op.Result, len(ops))
	s, err := r.session(Batch{Ops: ops}, nil)
	s.planning = true
	for i, o := range ops {
		results[i] = op.Result{Kind: o.Kind(), Target: o.Target()}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			results[i].Status, results[i].Error = op.Failed, failure(err)
			continue
		}
		s.check(ctx, o, &results[i])
	}
	return results
}

// Apply applies operations in order, each checked again immediately before, and stops at
// the first failure. emit, if not nil, is called with output and transfers, but not
// concurrently. A batch with a fencing number below the highest seen is rejected, also
// between operations.
func (r *Runner) Apply(ctx context.Context, b Batch, emit func(opIndex int, p Progress)) []op.Result {
	var results []op.Result
	s, err := r.session(b, emit)
	for i, o := range b.Ops {
		res := op.Result{Kind: o.Kind(), Target: o.Target()}
		if err == nil {
			s.index = i
			err = s.applyOne(ctx, o, &res)
		}
		if err != nil {
			res.Status, res.Error = op.Failed, failure(err)
		}
		results = append(results, res)
		if res.Status == op.Failed {
			break
		}
	}
	return results
}

// session is one call of Check or Apply.
type session struct {
	*Runner
	batch Batch
	index int
	emit  func(int, Progress)
	// telling prevents concurrent calls of emit.
	telling sync.Mutex
	lock    *lock.Store
	// planning reports that this call applies nothing.
	planning bool
	// noted reports whether the responding services were recorded before the first
	// change.
	noted bool
	// ledger is opened when it is first needed under the apply lock.
	ledger *ledger.Ledger
	// predicted has the states that earlier operations would give to paths; "" is a
	// change with an unknown result.
	predicted map[string]string
	// operationOf returns the executor of an operation.
	operationOf func(op.Op) (operation, error)
}

func (r *Runner) session(b Batch, emit func(int, Progress)) (*session, error) {
	full := *r
	if full.Root == "" {
		full.Root = "/"
	}
	if full.State == "" {
		full.State = DefaultState
	}
	if full.Path == "" {
		full.Path = DefaultPath
	}
	if full.etcdTime == 0 {
		full.etcdTime = etcdTime
	}
	if full.patience == 0 {
		full.patience = displaceAfter
	}
	s := &session{Runner: &full, batch: b, emit: emit, lock: full.lockStore(), predicted: map[string]string{},
		operationOf: operationOf}
	return s, s.fenced()
}

// fenced rejects a batch of a displaced manager.
func (s *session) fenced() error {
	if s.batch.Fence == 0 {
		return nil
	}
	highest, err := s.lock.Highest()
	if err != nil || s.batch.Fence >= highest {
		return err
	}
	return &op.Error{Reason: "Fenced",
		Message: fmt.Sprintf("another manager has taken over this cluster (its fencing number is %d, this manager's is %d)",
			highest, s.batch.Fence)}
}

func (s *session) applyOne(ctx context.Context, o op.Op, res *op.Result) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.fenced(); err != nil {
		return err
	}
	if s.check(ctx, o, res); res.Status != op.Changed {
		return nil
	}
	if w, ok := o.(op.Wait); ok {
		return (&waitOp{o: w}).Apply(ctx, s, res)
	}
	leave, waited, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if waited {
		// Another helper was working: the host may be in the wanted state now.
		if s.check(ctx, o, res); res.Status != op.Changed {
			return nil
		}
	}
	if err := s.noteServing(ctx); err != nil {
		return err
	}
	return s.apply(ctx, o, res)
}

// tell passes progress on.
func (s *session) tell(p Progress) {
	if s.emit == nil {
		return
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	s.emit(s.index, p)
}

// path returns the path on disk of a path of the host.
func (s *session) path(p string) string { return filepath.Join(s.Root, p) }

// state returns a path below the state directory.
func (s *session) state(elem ...string) string {
	return filepath.Join(append([]string{s.State}, elem...)...)
}

// failure converts an error for a result.
func failure(err error) *op.Error {
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

// invalid returns the error for an operation that is not valid.
func invalid(format string, args ...any) error {
	return &op.Error{Reason: "Invalid", Message: fmt.Sprintf(format, args...)}
}
