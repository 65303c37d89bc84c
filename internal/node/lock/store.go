//go:build linux

package lock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
)

// A Store stores the lock in a host's state directory. Two processes can use the same
// directory at once.
type Store struct {
	// Dir is the state directory; it is created when the lock is first taken.
	Dir string
	// Past is a directory that keeps the fence after the state directory is removed,
	// until the host's next boot. Only root can access it.
	Past string
	Disk atomicfile.Disk
	// BootID identifies a boot of the host.
	BootID func() (string, error)
	// Uptime is the host's monotonic clock: CLOCK_BOOTTIME.
	Uptime func() (time.Duration, error)
	// Foreign reports whether an entry of the state directory does not belong to Slipway;
	// nil means that all do.
	Foreign func(name string) bool
	// Units returns the running transient units of an operation.
	Units func(ctx context.Context, operation string) ([]string, error)
}

// record is the stored form of the lock.
type record struct {
	Lock
	BootID string  `json:"bootID"`
	Beat   float64 `json:"beat"` // seconds of CLOCK_BOOTTIME
}

// SystemUptime reads CLOCK_BOOTTIME, which continues during suspend and is never set.
func SystemUptime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("reading the monotonic clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

// ReadState returns the holder of the lock. It changes nothing.
func (s *Store) ReadState(ctx context.Context) (State, error) {
	st, _, err := s.readRecord(ctx)
	return st, err
}

func (s *Store) readRecord(ctx context.Context) (State, record, error) {
	var st State
	var rec record
	highest, err := s.HighestFence()
	if err != nil {
		return st, rec, err
	}
	st.Highest = highest
	if st.Manager, err = s.readManager(); err != nil {
		return st, rec, err
	}
	raw, err := bounded.ReadFile(filepath.Join(s.Dir, FileName), bounded.Word)
	if errors.Is(err, fs.ErrNotExist) {
		return st, rec, nil
	}
	if err != nil {
		return st, rec, fmt.Errorf("reading the lock: %w", err)
	}
	if err := json.Unmarshal(raw, &rec); err != nil {
		return st, rec, fmt.Errorf("reading the lock in %s: %w", s.Dir, err)
	}
	st.Held, st.Holder = true, rec.Lock
	boot, err := s.BootID()
	if err != nil {
		return st, rec, err
	}
	up, err := s.Uptime()
	if err != nil {
		return st, rec, err
	}
	silent := boot != rec.BootID
	if silent {
		// The last heartbeat of its holder was before the host started.
		st.AgeSeconds = up.Seconds()
	} else {
		st.AgeSeconds = max(0, up.Seconds()-rec.Beat)
		silent = st.AgeSeconds >= StaleSeconds
	}
	if st.Units, err = s.Units(ctx, rec.Operation); err != nil {
		return st, rec, err
	}
	st.Stale = silent && len(st.Units) == 0
	return st, rec, nil
}

// TakeLock writes the lock if the fencing number of l is above the highest one seen, and the
// current lock is free, stale, held by the process l.Over of the same manager, or
// breaking is true, which also replaces a fence that cannot be read. Otherwise it returns
// the current state and false.
func (s *Store) TakeLock(ctx context.Context, l Lock, breaking bool) (State, bool, error) {
	unlock, err := s.lockExclusively(true)
	if err != nil {
		return State{}, false, err
	}
	defer unlock()
	st, err := s.ReadState(ctx)
	if breaking && isUnreadable(err) { // the fence is written again
		err = s.Disk.RemovePath(filepath.Join(s.Dir, ManagerName))
	}
	if err != nil {
		return st, false, err
	}
	own := st.Holder.Manager == l.Manager && st.Holder.Process == l.Over
	l.Over = ""
	free := !st.Held || st.Stale || own || breaking
	if !free || l.Fence <= st.Highest {
		return st, false, nil
	}
	// The number is raised before the lock changes hands: from then on the former holder
	// is rejected, whatever happens.
	if err := s.recordFence(l.Fence); err != nil {
		return st, false, err
	}
	if err := s.writeLock(l); err != nil {
		return st, false, err
	}
	st, err = s.ReadState(ctx)
	return st, err == nil && st.Held && st.Holder == l, err
}

// RenewHeartbeat renews the heartbeat; it returns false if the lock is no longer l. It also saves the holder as the manager
// of the cluster: a holder sends heartbeats when it has the lock of enough hosts.
func (s *Store) RenewHeartbeat(ctx context.Context, l Lock) (bool, error) {
	unlock, err := s.lockExclusively(false)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unlock()
	st, err := s.ReadState(ctx)
	if err != nil || !st.Held || st.Holder != l {
		return false, err
	}
	return true, errors.Join(s.writeManager(l, st.Manager), s.writeLock(l))
}

// ReleaseLock frees the lock if it is still l. If only the fence remains of Slipway's files
// in the state directory, the fence is moved to Past, and the directory is removed.
func (s *Store) ReleaseLock(ctx context.Context, l Lock) error {
	unlock, err := s.lockExclusively(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	st, err := s.ReadState(ctx)
	if err != nil {
		return err
	}
	if st.Held && st.Holder == l {
		if err := s.Disk.RemovePath(filepath.Join(s.Dir, FileName)); err != nil {
			return fmt.Errorf("releasing the lock: %w", err)
		}
		st.Held = false
	}
	if st.Held {
		return nil
	}
	return s.removeLeftovers()
}

// removeLeftovers removes the lock files from a state directory without other files of Slipway: the
// host was restored, or nothing was ever changed on it.
func (s *Store) removeLeftovers() error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return fmt.Errorf("releasing the lock: %w", err)
	}
	for _, e := range entries {
		if e.Name() != FenceName && e.Name() != ManagerName && !s.isForeign(e.Name()) {
			return nil
		}
	}
	if err := s.ForgetLock(); err != nil {
		return err
	}
	if err := os.Remove(s.Dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("releasing the lock: %w", err)
	}
	return nil
}

func (s *Store) isForeign(name string) bool { return s.Foreign != nil && s.Foreign(name) }

// ForgetLock moves the fence out of the state directory, and removes a held lock. A displaced
// manager is still rejected.
func (s *Store) ForgetLock() error {
	highest, err := s.HighestFence()
	if err == nil && highest > 0 && s.Past != "" {
		err = s.recordIn(s.Past, highest)
	}
	if err != nil && !isUnreadable(err) {
		return err
	}
	for _, name := range []string{FileName, ManagerName, FenceName} {
		if err := s.Disk.RemovePath(filepath.Join(s.Dir, name)); err != nil {
			return fmt.Errorf("releasing the lock: %w", err)
		}
	}
	return nil
}

// HighestFence returns the highest fencing number that this host has seen.
func (s *Store) HighestFence() (uint64, error) {
	highest, err := fenceIn(s.Dir)
	if err != nil || s.Past == "" {
		return highest, err
	}
	past, err := fenceIn(s.Past)
	return max(highest, past), err
}

func fenceIn(dir string) (uint64, error) {
	path := filepath.Join(dir, FenceName)
	raw, err := bounded.ReadFile(path, bounded.Word)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	var n uint64
	if err == nil {
		n, err = strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	}
	if err != nil {
		return 0, &FenceError{Path: path, Err: err}
	}
	return n, nil
}

func isUnreadable(err error) bool {
	var fence *FenceError
	return errors.As(err, &fence)
}

// RaiseFence records a fencing number, if it is the highest.
func (s *Store) RaiseFence(fence uint64) error {
	unlock, err := s.lockExclusively(true)
	if err != nil {
		return err
	}
	defer unlock()
	return s.raiseFence(fence)
}

func (s *Store) raiseFence(fence uint64) error {
	highest, err := s.HighestFence()
	if err != nil || fence <= highest {
		return err
	}
	return s.recordFence(fence)
}

// recordFence saves a number that is the highest. The number in Past is then no longer needed.
func (s *Store) recordFence(fence uint64) error {
	err := s.recordIn(s.Dir, fence)
	if err == nil && s.Past != "" {
		err = s.Disk.RemovePath(filepath.Join(s.Past, FenceName))
	}
	return err
}

func (s *Store) recordIn(dir string, fence uint64) error {
	content := strings.NewReader(strconv.FormatUint(fence, 10) + "\n")
	err := s.Disk.MkdirAll(dir, atomicfile.Meta{Mode: 0o700})
	if err == nil {
		err = s.Disk.ReplaceFile(filepath.Join(dir, FenceName), content, atomicfile.Meta{Mode: 0o600})
	}
	if err != nil {
		return fmt.Errorf("saving the fence: %w", err)
	}
	return nil
}

func (s *Store) writeLock(l Lock) error {
	boot, err := s.BootID()
	if err != nil {
		return err
	}
	up, err := s.Uptime()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(record{Lock: l, BootID: boot, Beat: up.Seconds()})
	if err != nil {
		return fmt.Errorf("encoding the lock: %w", err)
	}
	if err := s.Disk.ReplaceFile(filepath.Join(s.Dir, FileName), strings.NewReader(string(raw)+"\n"),
		atomicfile.Meta{Mode: 0o600}); err != nil {
		return fmt.Errorf("writing the lock: %w", err)
	}
	return nil
}

// readManager returns the manager of the cluster, or an empty one. A file that cannot be read is a FenceError.
func (s *Store) readManager() (m Manager, err error) {
	raw, err := bounded.ReadFile(filepath.Join(s.Dir, ManagerName), bounded.Word)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil {
		return Manager{}, &FenceError{Path: filepath.Join(s.Dir, ManagerName), Err: err}
	}
	return m, nil
}

// writeManager saves the holder of a lock as the manager of the cluster. A cluster that no management server has managed
// has no such file.
func (s *Store) writeManager(l Lock, was Manager) error {
	if l.Manager == was.ID && l.Server == was.Server || l.Server == "" && was == (Manager{}) {
		return nil
	}
	is := Manager{ID: l.Manager, Server: l.Server, Fence: l.Fence}
	raw, err := json.Marshal(is)
	if err == nil {
		err = s.Disk.ReplaceFile(filepath.Join(s.Dir, ManagerName), strings.NewReader(string(raw)+"\n"), atomicfile.Meta{Mode: 0o600})
	}
	if err != nil {
		return fmt.Errorf("saving the manager of the cluster: %w", err)
	}
	return nil
}

// lockExclusively excludes other processes from the lock files with a flock on the state
// directory itself, which leaves no file behind. An earlier holder may have removed the
// directory, and another process may have created it again: then the flock is on a
// directory that no other process uses.
func (s *Store) lockExclusively(create bool) (func(), error) {
	err := fs.ErrNotExist
	for range attempts {
		if create {
			if err = s.Disk.MkdirAll(s.Dir, atomicfile.Meta{Mode: 0o700}); errors.Is(err, fs.ErrNotExist) {
				continue // removed in the meantime
			}
			if err != nil {
				return nil, fmt.Errorf("creating %s: %w", s.Dir, err)
			}
		}
		var dir *os.File
		dir, err = os.Open(s.Dir)
		if create && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("opening %s: %w", s.Dir, err)
		}
		if err := lockDir(dir); err != nil {
			dir.Close()
			return nil, fmt.Errorf("locking %s: %w", s.Dir, err)
		}
		ours, err1 := dir.Stat()
		there, err2 := os.Stat(s.Dir)
		if err1 == nil && err2 == nil && os.SameFile(ours, there) {
			return func() { dir.Close() }, nil
		}
		dir.Close()
		if err = errors.Join(err1, err2); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("locking %s: %w", s.Dir, err)
		}
	}
	return nil, fmt.Errorf("locking %s: other processes keep removing the directory: %w", s.Dir, err)
}

// attempts limits how often a directory is opened that other processes remove.
const attempts = 1000

func lockDir(dir *os.File) error {
	for {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
