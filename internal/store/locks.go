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
	"slipway.dev/slipway/internal/process"
)

// Locks are the locks of clusters.
type Locks struct{ *directory }

// A Holder is the process that holds a cluster's lock.
type Holder struct {
	PID       int       `json:"pid"`
	Start     uint64    `json:"start,omitempty"` // of the process, see package process
	Host      string    `json:"host,omitempty"`  // the machine PID is on
	Operation string    `json:"operation,omitempty"`
	Since     time.Time `json:"since,omitzero"`
}

// String returns the holder for users: "process 4711 on mgr1".
func (h Holder) String() string {
	if h.PID == 0 {
		return "an unknown process"
	}
	if h.Host == "" {
		return fmt.Sprintf("process %d", h.PID)
	}
	return fmt.Sprintf("process %d on %s", h.PID, h.Host)
}

// IsSameProcess reports whether two holders are the same process.
func (h Holder) IsSameProcess(o Holder) bool {
	return h.PID == o.PID && h.Start == o.Start && h.Host == o.Host
}

// equal reports whether two holders are the same process with the same operation, since the
// same time.
func (h Holder) equal(o Holder) bool {
	return h.IsSameProcess(o) && h.Operation == o.Operation && h.Since.Equal(o.Since)
}

// A HeldError is returned if another process holds a cluster's lock.
type HeldError struct {
	Cluster string
	Holder  Holder
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("cluster %s is locked by %s", e.Cluster, e.Holder)
}

// lockPatience is how long Acquire tries: a process that asks for the holder also holds the
// lock for an instant.
const (
	lockPatience = 300 * time.Millisecond
	lockInterval = 10 * time.Millisecond
)

// A Lock is the permission to change a cluster. The kernel releases it when the process
// ends in any way.
type Lock struct {
	f      *os.File
	holder Holder
}

// Acquire takes a cluster's lock, whether the cluster is saved or not. It does not wait for
// another holder but returns a *HeldError. PID, Host and Since of the holder may be empty.
func (s Locks) Acquire(ctx context.Context, name string, who Holder) (*Lock, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("locking cluster: %w", err)
	}
	who = who.withDefaults()
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
			if err := l.SetHolder(who); err != nil {
				return nil, errors.Join(fmt.Errorf("locking cluster %s: %w", name, err), l.Release())
			}
			return l, s.removeTempFiles(s.clusterPath(name))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("locking cluster %s: %w", name, context.Cause(ctx))
		case <-patience.C:
			h, _ := s.readHolder(s.clusterPath(name, "lock"))
			return nil, &HeldError{Cluster: name, Holder: h}
		case <-tick.C:
		}
	}
}

// tryAcquire returns nil if another process has the lock or has just removed its file.
func (s Locks) tryAcquire(name string) (*Lock, error) {
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
	return &Lock{f: f}, nil
}

// SetHolder saves the holder of the lock, once the operation has an id.
func (l *Lock) SetHolder(who Holder) error {
	who = who.withDefaults()
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
func (l *Lock) Holder() Holder { return l.holder }

// Release releases the lock.
func (l *Lock) Release() error {
	// Closing releases: no other descriptor of this open file exists.
	return errors.Join(l.f.Truncate(0), l.f.Close())
}

// Holder returns the holder of a cluster's lock, nil if it is free.
func (s Locks) Holder(name string) (*Holder, error) {
	if err := checkName(name); err != nil {
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
func (s Locks) readHolder(path string) (Holder, error) {
	f, err := s.openFile(path)
	if err != nil {
		return Holder{}, err
	}
	defer f.Close()
	b, err := bounded.ReadAll(f, bounded.Word)
	if err != nil {
		return Holder{}, err
	}
	var h Holder
	if json.Unmarshal(b, &h) != nil {
		return Holder{}, nil
	}
	return h, nil
}

// ThisProcess returns this process as a Holder.
func ThisProcess() Holder { return Holder{}.withDefaults() }

func (h Holder) withDefaults() Holder {
	if h.PID == 0 {
		h.PID = os.Getpid()
		if p, err := process.Find(h.PID); err == nil {
			h.Start = p.Start
		}
	}
	if h.Host == "" {
		h.Host, _ = os.Hostname()
	}
	if h.Since.IsZero() {
		h.Since = time.Now().UTC()
	}
	return h
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
