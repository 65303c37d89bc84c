//go:build linux

package helper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"slipway.dev/slipway/internal/node/executor"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/lock"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/p2p"
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/node/wire"
	"slipway.dev/slipway/internal/remote"
)

// handler adapts a Runner to the wire protocol.
type handler struct {
	runner *executor.Runner
	name   string // of this program's file, which contains its digest
	lender *p2p.Lender
}

// newHandler returns a handler whose Runner gets its content from f, and lends it.
func newHandler(r executor.Runner, name string, f wire.Fetcher) handler {
	lender := &p2p.Lender{}
	r.Blobs = blobs{f, lender}
	return handler{runner: &r, name: name, lender: lender}
}

var _ wire.Handler = handler{}

func (h handler) Check(ctx context.Context, ops op.List) []op.Result {
	return h.runner.Check(ctx, ops)
}

func (h handler) Apply(ctx context.Context, b remote.Batch, emit func(remote.Progress)) []op.Result {
	batch := host.Batch{Operation: b.Operation, Step: b.Step, Cluster: b.Cluster, Fence: b.Fence, Ops: b.Ops}
	results := h.runner.Apply(ctx, batch, func(i int, p host.Progress) {
		emit(remote.Progress{Op: i, Output: p.Output, Done: p.Done, Total: p.Total})
	})
	if staysManaged(results) {
		// The next session then finds the helper; if it cannot be saved, it is sent
		// again.
		_ = saveProgram(filepath.Join(host.DefaultState, "bin"), h.name)
	}
	return results
}

func (h handler) Lend(ctx context.Context, l remote.Loan) (remote.Offer, error) {
	return h.lender.Lend(ctx, l)
}

func (h handler) EndLoans() { h.lender.Close() }

func (h handler) ReadLock(ctx context.Context) (remote.LockState, error) {
	st, err := h.runner.ReadLock(ctx)
	return lockState(st), err
}

func (h handler) TakeLock(ctx context.Context, l remote.Lock, breaking bool) (remote.LockState, bool, error) {
	st, ok, err := h.runner.TakeLock(ctx, lock.Lock(l), breaking)
	return lockState(st), ok, err
}

func (h handler) Beat(ctx context.Context, l remote.Lock) (bool, error) {
	return h.runner.Beat(ctx, lock.Lock(l))
}

func (h handler) ReleaseLock(ctx context.Context, l remote.Lock) error {
	return h.runner.ReleaseLock(ctx, lock.Lock(l))
}

func lockState(st lock.State) remote.LockState {
	return remote.LockState{
		Held: st.Held, Holder: remote.Lock(st.Holder), Highest: st.Highest, Manager: remote.Manager(st.Manager),
		AgeSeconds: st.AgeSeconds, Stale: st.Stale, Units: st.Units,
	}
}

func (h handler) Run(ctx context.Context, c remote.Command, in io.Reader, out, errw io.Writer) (int, error) {
	return h.runner.Run(ctx, c.Argv, c.User, in, out, errw)
}

// Copy sends or receives with the permissions of the user.
func (h handler) Copy(ctx context.Context, c remote.Copy, conn io.ReadWriter) error {
	began := false
	err := h.runner.As(ctx, c.User, c.Path, func(path string) error {
		began = true
		if !c.Send {
			_, err := transfer.ReceiveTree(ctx, conn, transfer.Place{Path: path, Exact: c.Exact}, nil)
			return err
		}
		tree, err := transfer.ReadTree(ctx, path, nil)
		if err != nil {
			transfer.SendError(conn, err)
			return err
		}
		_, err = tree.Send(conn, nil)
		return err
	})
	if !began && err != nil {
		transfer.SendError(conn, err)
	}
	return err
}

// staysManaged reports whether a batch has changed this host without restoring it.
func staysManaged(results []op.Result) bool {
	changed := false
	for _, r := range results {
		if r.Kind == op.KindRestoreHost {
			return false
		}
		changed = changed || r.Status == op.Changed
	}
	return changed
}

// saveProgram saves this program in dir, with its name, which identifies its content.
func saveProgram(dir, name string) error {
	path := filepath.Join(dir, name)
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("saving the helper: %w", err)
	}
	in, err := os.Open(self)
	if err != nil {
		return fmt.Errorf("saving the helper: %w", err)
	}
	defer func() { _ = in.Close() }()
	out, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return fmt.Errorf("saving the helper: %w", err)
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Chmod(0o700), out.Sync(), out.Close())
	if err == nil {
		err = os.Rename(out.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("saving the helper: %w", err), os.Remove(out.Name()))
	}
	return forgetOthers(dir, path)
}

// forgetOthers removes helpers of other versions; running helpers no longer need their
// file.
func forgetOthers(dir, kept string) error {
	all, err := filepath.Glob(filepath.Join(dir, "slipway-node-*"))
	for _, path := range all {
		if path != kept {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}
