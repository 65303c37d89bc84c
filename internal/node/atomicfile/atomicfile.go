//go:build linux

package atomicfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/fsync"
)

// A Disk makes changes. Its zero value can be used.
type Disk struct {
	// After, if not nil, is called with the name of each step that later steps rely on:
	// tests stop the program there.
	After func(step string)
}

// Meta has the metadata of a file.
type Meta struct {
	Mode   fs.FileMode // permission bits, with setuid, setgid, sticky
	UID    int
	GID    int
	XAttrs map[string][]byte
	MTime  time.Time // zero: now
}

// TempSuffix is the suffix of files that are being written. The name is fixed, so that
// the next attempt overwrites a file that a crash left.
const TempSuffix = ".slipway-tmp"

// TempPath returns the path at which new content of a file is written before it is renamed.
// It starts with a dot and has no extension that a directory of drop-in files would read.
func TempPath(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+TempSuffix)
}

// RunAfter calls After.
func (d Disk) RunAfter(step string) {
	if d.After != nil {
		d.After(step)
	}
}

// A Staged file is written and synced, but not renamed yet.
type Staged struct {
	SHA256 string // of the content, hexadecimal
	Size   int64  // bytes
	disk   Disk
	path   string
}

// StageFile writes content to the temporary name of path.
func (d Disk) StageFile(path string, content io.Reader, m Meta) (*Staged, error) {
	temp := TempPath(path)
	// A file that a crash left there can be a link or have another owner.
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), content)
	if err == nil {
		err = m.applyTo(f)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(temp)
		return nil, err
	}
	d.RunAfter("stage " + path)
	return &Staged{SHA256: hex.EncodeToString(h.Sum(nil)), Size: n, disk: d, path: path}, nil
}

// Commit renames the file to its path.
func (s *Staged) Commit() error {
	if err := os.Rename(TempPath(s.path), s.path); err != nil {
		os.Remove(TempPath(s.path))
		return addDenialCause(s.path, err)
	}
	if err := fsync.SyncDir(filepath.Dir(s.path)); err != nil {
		return err
	}
	s.disk.RunAfter("commit " + s.path)
	return nil
}

// addDenialCause adds the likely cause if root cannot change a file.
func addDenialCause(path string, err error) error {
	if !errors.Is(err, unix.EPERM) || os.Geteuid() != 0 {
		return err
	}
	return fmt.Errorf("%w: the file may have the immutable flag: 'lsattr %s' shows the flag i, and 'chattr -i %s' clears it", err, path, path)
}

// Discard removes the staged file.
func (s *Staged) Discard() error { return os.Remove(TempPath(s.path)) }

// ReplaceFile writes a whole file: readers see the old or the new content.
func (d Disk) ReplaceFile(path string, content io.Reader, m Meta) error {
	s, err := d.StageFile(path, content, m)
	if err != nil {
		return err
	}
	return s.Commit()
}

// ReplaceLink makes path a symbolic link, replacing an existing file or link. It uses the owner
// and time of m.
func (d Disk) ReplaceLink(path, to string, m Meta) error {
	temp := TempPath(path)
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(to, temp); err != nil {
		return err
	}
	err := os.Lchown(temp, m.UID, m.GID)
	if err == nil && !m.MTime.IsZero() {
		t := unix.NsecToTimespec(m.MTime.UnixNano())
		err = unix.UtimesNanoAt(unix.AT_FDCWD, temp, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(addDenialCause(path, err), os.Remove(temp))
	}
	if err := fsync.SyncDir(filepath.Dir(path)); err != nil {
		return err
	}
	d.RunAfter("link " + path)
	return nil
}

// RemovePath removes a file, link or empty directory; a missing one is not an error.
func (d Disk) RemovePath(path string) error {
	return d.ignoreGone(path, os.Remove(path))
}

// RemoveAll removes path with its content.
func (d Disk) RemoveAll(path string) error {
	return d.ignoreGone(path, os.RemoveAll(path))
}

func (d Disk) ignoreGone(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := fsync.SyncDir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.RunAfter("remove " + path)
	return nil
}

// MakeDir creates one directory; an existing one gets the mode and owner of m.
func (d Disk) MakeDir(path string, m Meta) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := SetMeta(path, m); err != nil {
		return err
	}
	if err := fsync.SyncDir(filepath.Dir(path)); err != nil {
		return err
	}
	d.RunAfter("mkdir " + path)
	return nil
}

// MkdirAll creates a directory and its missing parents; existing ones are not changed.
func (d Disk) MkdirAll(path string, m Meta) error {
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.MkdirAll(filepath.Dir(path), Meta{Mode: 0o755}); err != nil {
		return err
	}
	return d.MakeDir(path, m)
}

// SetMeta sets mode, owner and extended attributes of a file or directory.
func SetMeta(path string, m Meta) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return m.applyTo(f)
}

// applyTo sets the owner first: chown clears setuid bits. It does not call chown if the owner
// is right: a service may not have the permission.
func (m Meta) applyTo(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || int(st.Uid) != m.UID || int(st.Gid) != m.GID {
		if err := f.Chown(m.UID, m.GID); err != nil {
			return err
		}
	}
	if err := f.Chmod(m.Mode); err != nil {
		return err
	}
	for name, value := range m.XAttrs {
		err := unix.Fsetxattr(int(f.Fd()), name, value, 0)
		// A file system without extended attributes, or a kernel that reserves the name,
		// loses nothing that was visible.
		if err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("setting attribute %s: %w", name, err)
		}
	}
	if m.MTime.IsZero() {
		return nil
	}
	return os.Chtimes(f.Name(), m.MTime, m.MTime)
}

// SyncTree syncs the content of a file, or everything below a directory. Other file
// types, and files that disappear meanwhile, have no content.
func SyncTree(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
		case d.IsDir():
			err = fsync.SyncDir(path)
		case d.Type().IsRegular():
			err = syncFile(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

func syncFile(path string) error {
	f, err := Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
