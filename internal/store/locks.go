package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/records"
)

// locks are the locks of clusters.
type locks struct{ *directory }

// lockPatience is how long Acquire tries: a process that asks for the holder also holds the
// lock for an instant.
const (
	lockPatience = 300 * time.Millisecond
	lockInterval = 10 * time.Millisecond
)

// A clusterLock is a lock that is held. The kernel releases it when the process
// ends in any way.
type clusterLock struct {
	f      *os.File
	holder records.Holder
}

// Acquire takes a cluster's lock, whether the cluster is saved or not. It does not wait for
// another holder but returns a *HeldError. PID, Host and Since of the holder may be empty.
func (s locks) Acquire(ctx context.Context, name string, who records.Holder) (records.Lock, error) {
	if err := records.CheckName(name); err != nil {
		return nil, fmt.Errorf("locking cluster: %w", err)
	}
	who = who.WithDefaults()
	patience := time.NewTimer(lockPatience)
	defer patience.Stop()
	tick := time.NewTicker(lockInterval)
	defer tick.Stop()
	for {
		l, err := s.tryAcquire(name)
		if err != nil {
			return nil, fmt.Errorf("locking cluster %s: %w", name, err)
		}
		if l != nil {
			if err := l.SetHolder(ctx, who); err != nil {
				return nil, errors.Join(fmt.Errorf("locking cluster %s: %w", name, err), l.Release())
			}
			return l, s.removeTempFiles(s.clusterPath(name))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("locking cluster %s: %w", name, context.Cause(ctx))
		case <-patience.C:
			h, _ := s.readHolder(s.clusterPath(name, "lock"))
			return nil, &records.HeldError{Cluster: name, Holder: h}
		case <-tick.C:
		}
	}
}

// tryAcquire returns nil if another process has the lock or has just removed its file.
func (s locks) tryAcquire(name string) (*clusterLock, error) {
	if err := s.makeDir(s.clusterPath(name)); err != nil {
		return nil, err
	}
	path := s.clusterPath(name, "lock")
	f, err := s.openOwn(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the cluster is being removed
	}
	if err != nil {
		return nil, err
	}
	if err := lockFile(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = nil
		}
		return nil, errors.Join(err, f.Close())
	}
	// The file may have been removed between open and flock: a lock on a file without a
	// name excludes no other process.
	have, err1 := f.Stat()
	want, err2 := s.statFile(path)
	if err1 != nil || err2 != nil || !os.SameFile(have, want) {
		return nil, f.Close()
	}
	return &clusterLock{f: f}, nil
}

// SetHolder saves the holder of the lock, once the operation has an id.
func (l *clusterLock) SetHolder(_ context.Context, who records.Holder) error {
	who = who.WithDefaults()
	b, err := json.Marshal(who)
	if err != nil {
		return err
	}
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	if _, err = l.f.WriteAt(append(b, '\n'), 0); err != nil {
		return addWriteHint(l.f.Name(), err)
	}
	l.holder = who
	return nil
}

// Holder returns the saved holder of the lock.
func (l *clusterLock) Holder() records.Holder { return l.holder }

// Check returns nil: the kernel keeps the lock while the process runs.
func (l *clusterLock) Check(context.Context) error { return nil }

// ID implements records.Lock. A file lock has none.
func (l *clusterLock) ID() string { return "" }

// NotifyLost returns nil: the kernel keeps the lock while the process runs.
func (l *clusterLock) NotifyLost() <-chan struct{} { return nil }

// Release releases the lock.
func (l *clusterLock) Release() error {
	// Closing releases: no other descriptor of this open file exists.
	return errors.Join(l.f.Truncate(0), l.f.Close())
}

// Holder returns the holder of a cluster's lock, nil if it is free.
func (s locks) Holder(_ context.Context, name string) (*records.Holder, error) {
	if err := records.CheckName(name); err != nil {
		return nil, fmt.Errorf("checking the lock: %w", err)
	}
	path := s.clusterPath(name, "lock")
	f, err := s.openFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("checking the lock of cluster %s: %w", name, err)
	}
	defer f.Close()
	switch err := lockFile(f, unix.LOCK_SH|unix.LOCK_NB); {
	case err == nil:
		return nil, nil // closing the file releases it
	case !errors.Is(err, unix.EWOULDBLOCK):
		return nil, fmt.Errorf("checking the lock of cluster %s: %w", name, err)
	}
	h, err := s.readHolder(path)
	if err != nil {
		return nil, fmt.Errorf("checking the lock of cluster %s: %w", name, err)
	}
	return &h, nil
}

// readHolder returns an empty Holder if none is written yet.
func (s locks) readHolder(path string) (records.Holder, error) {
	f, err := s.openFile(path)
	if err != nil {
		return records.Holder{}, err
	}
	defer f.Close()
	b, err := bounded.ReadAll(f, bounded.Word)
	if err != nil {
		return records.Holder{}, err
	}
	var h records.Holder
	if json.Unmarshal(b, &h) != nil {
		return records.Holder{}, nil
	}
	return h, nil
}

// lockFile is unix.Flock, repeated if a signal interrupts it.
func lockFile(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
