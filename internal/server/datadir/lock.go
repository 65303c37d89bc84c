package datadir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/process"
)

// ErrNotRunning is the error of ReadHolder if no process holds the lock.
var ErrNotRunning = errors.New("the server is not running")

// A Holder is the process that holds the lock of a data directory.
type Holder struct {
	PID   int       `json:"pid"`
	Start uint64    `json:"start,omitempty"` // of the process, see package process
	Since time.Time `json:"since,omitzero"`
	// Address is the address of the API, host:port. It is empty until the server listens,
	// and if another command holds the lock.
	Address string `json:"address,omitempty"`
}

// String returns the holder for users.
func (h Holder) String() string {
	switch {
	case h.PID == 0:
		return "another process"
	case h.Address == "":
		return fmt.Sprintf("process %d", h.PID)
	}
	return fmt.Sprintf("process %d, which serves %s", h.PID, h.Address)
}

const (
	// lockPatience is how long acquireLock tries: ReadHolder also locks for an instant.
	lockPatience = 2 * time.Second
	lockInterval = 10 * time.Millisecond
	// lockSize is the size of the file, in bytes. The file is written in place, so that a
	// full disk does not prevent it.
	lockSize = 512
)

// acquireLock locks a data directory. The kernel releases the lock when the process ends
// in any way.
func acquireLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	patience := time.NewTimer(lockPatience)
	defer patience.Stop()
	tick := time.NewTicker(lockInterval)
	defer tick.Stop()
	for {
		f, err := tryLock(path)
		if f != nil || err != nil {
			return f, explainWrite(dir, err)
		}
		select {
		case <-patience.C:
			return nil, inUseError(dir, readHolder(path))
		case <-tick.C:
		}
	}
}

// tryLock returns nil if another process has the lock, or has just renamed the directory.
func tryLock(path string) (*os.File, error) {
	f, err := openLock(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = nil
		}
		return nil, errors.Join(err, f.Close())
	}
	have, err1 := f.Stat()
	want, err2 := os.Lstat(path)
	if err1 != nil || err2 != nil || !os.SameFile(have, want) {
		return nil, f.Close()
	}
	return f, nil
}

// openLock opens the file of a lock. It follows no link, and refuses a file of another user.
func openLock(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return nil, diag.Refuse(idUnsafe, path+" is a symbolic link", "remove the link")
	}
	if errors.Is(err, syscall.EISDIR) {
		return nil, diag.Refuse(idUnsafe, path+" is a directory", "move it away")
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = diag.Refuse(idUnsafe, path+" is not a regular file", "move it away")
	}
	if err == nil && uidOf(info) != os.Geteuid() {
		err = diag.Refuse(idUnsafe, fmt.Sprintf("%s belongs to user %d", path, uidOf(info)), "move it away")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// flock is unix.Flock, repeated if a signal interrupts it.
func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// WriteHolder writes the address of the API into the lock, for commands on this machine.
func (d *Dir) WriteHolder(address string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return errors.New("writing the address of the server: the data directory is closed")
	}
	if err := d.writeHolder(address); err != nil {
		return fmt.Errorf("writing the address of the server: %w", err)
	}
	return nil
}

func (d *Dir) writeHolder(address string) error {
	h := Holder{PID: os.Getpid(), Since: time.Now().UTC(), Address: address}
	if p, err := process.Find(h.PID); err == nil {
		h.Start = p.Start
	}
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return explainWrite(d.path, writeLock(d.lock, data))
}

// writeLock replaces the content of a lock, and fills it with newlines to a fixed size.
func writeLock(f *os.File, data []byte) error {
	padding := bytes.Repeat([]byte("\n"), max(1, lockSize-len(data)))
	if _, err := f.WriteAt(append(data, padding...), 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(data) + len(padding)))
}

// releaseLock removes the holder from a lock, and releases the lock.
func releaseLock(f *os.File) error {
	_ = writeLock(f, nil) // without the lock, the content has no meaning
	return f.Close()
}

// ReadHolder returns the process that holds the lock of a data directory, or ErrNotRunning.
// It changes nothing.
func ReadHolder(path string) (Holder, error) {
	h, err := findHolder(path)
	if err != nil {
		return Holder{}, fmt.Errorf("reading the lock of the data directory: %w", err)
	}
	return h, nil
}

func findHolder(path string) (Holder, error) {
	dir, _, err := checkExisting(path)
	if err != nil {
		return Holder{}, err
	}
	path = filepath.Join(dir, lockFile)
	f, err := openLock(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return Holder{}, ErrNotRunning
	}
	if err != nil {
		return Holder{}, err
	}
	defer f.Close()
	switch err := flock(f, unix.LOCK_SH|unix.LOCK_NB); {
	case err == nil:
		return Holder{}, ErrNotRunning // closing the file releases it
	case !errors.Is(err, unix.EWOULDBLOCK):
		return Holder{}, err
	}
	return readHolder(path), nil
}

// readHolder returns an empty Holder if it cannot be read, or is not written yet.
func readHolder(path string) Holder {
	f, err := openLock(path, os.O_RDONLY)
	if err != nil {
		return Holder{}
	}
	defer f.Close()
	data, err := bounded.ReadAll(f, bounded.Word)
	var h Holder
	if err != nil || json.Unmarshal(data, &h) != nil {
		return Holder{}
	}
	return h
}
