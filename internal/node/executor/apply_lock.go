//go:build linux

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/process"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// displaceAfter is how long a helper waits for another helper of the same manager, whose
// connection is lost but which has not detected this yet.
const displaceAfter = 10 * time.Second

// holder identifies the process with the apply lock, so that a successor can stop it.
type holder struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // of the process, in ticks since boot
}

// takeApplyLock makes this helper the only one that changes the host, raises the fence
// and opens the ledger. waited reports whether another helper was working before.
func (s *session) takeApplyLock(ctx context.Context) (leave func(), waited bool, err error) {
	if err := s.Disk.MkdirAll(s.State, atomicfile.Meta{Mode: 0o700}); err != nil {
		return nil, false, fmt.Errorf("creating %s: %w", s.State, err)
	}
	f, err := os.OpenFile(s.StatePath(host.ApplyLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("opening the apply lock: %w", err)
	}
	waited, err = s.waitForFlock(ctx, f)
	if err == nil {
		err = s.prepareApply(f)
	}
	if err != nil {
		f.Close()
		return nil, waited, err
	}
	return func() { f.Close() }, waited, nil
}

func (s *session) prepareApply(f *os.File) error {
	if err := s.requireCurrentFence(); err != nil {
		return err
	}
	if s.Batch.Fence > 0 {
		if err := s.Lock.RaiseFence(s.Batch.Fence); err != nil {
			return err
		}
	}
	start, err := process.StartTime(os.Getpid())
	if err != nil {
		return err
	}
	raw, err := json.Marshal(holder{PID: os.Getpid(), Start: start})
	if err != nil {
		return fmt.Errorf("encoding the holder of the apply lock: %w", err)
	}
	if err := errors.Join(f.Truncate(0), writeAt0(f, raw)); err != nil {
		return fmt.Errorf("writing the apply lock: %w", err)
	}
	by := ledger.Owner{Cluster: s.Batch.Cluster, Operation: s.Batch.Operation, Step: s.Batch.Step}
	s.Ledger, err = ledger.Open(s.State, s.Root, s.Disk, by)
	return err
}

func writeAt0(f *os.File, raw []byte) error {
	_, err := f.WriteAt(raw, 0)
	return err
}

// waitForFlock takes the lock, and waits for its holder. A helper without a manager can be
// blocked on a write to a lost connection: a helper with a fencing number stops it after
// a while, because all its work can be interrupted at any point and repeated.
func (s *session) waitForFlock(ctx context.Context, f *os.File) (waited bool, err error) {
	started := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return waited, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return waited, fmt.Errorf("taking the apply lock: %w", err)
		}
		waited = true
		if s.Batch.Fence > 0 && time.Since(started) > s.patience {
			if err := killStaleHelper(f); err != nil {
				return waited, err
			}
			started = time.Now()
		}
		select {
		case <-ctx.Done():
			return waited, &op.Error{Reason: "Busy", Message: "another helper is changing this host: " + ctx.Err().Error()}
		case <-tick.C:
		}
	}
}

// killStaleHelper kills the helper that holds the lock, if it is still the process that
// wrote the file and runs the same kind of program.
func killStaleHelper(f *os.File) error {
	raw := make([]byte, 1024)
	n, _ := f.ReadAt(raw, 0)
	var h holder
	if json.Unmarshal(raw[:n], &h) != nil || h.PID <= 1 || h.PID == os.Getpid() {
		return nil // being written; read it again
	}
	if start, err := process.StartTime(h.PID); err != nil || start != h.Start {
		return nil
	}
	if err := unix.Kill(h.PID, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stopping the helper that holds this host: %w", err)
	}
	return nil
}
