// Package privatedir makes directories for secrets that a program or library needs as files,
// although they are not saved as files: in memory if possible, and removed at the end.
//
// Each directory has mode 0700 and a random name, and is locked (flock) while its process runs.
// The kernel releases the lock when the process ends, also after SIGKILL. So Create recognizes
// the directories of ended processes, and removes them. The number of a process would not be
// enough: the kernel uses it again, and containers that share /dev/shm can have different
// processes with the same number. The number in the name is only for people. The lock also
// keeps systemd-tmpfiles from removing old files of a directory in use.
//
// Other users cannot lead the package elsewhere. It uses only parent directories in which no
// other user can replace its entries, and follows no link in them. Programs of the same user
// can read the files, and root can. A file in memory can get into swap space.
package privatedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
)

// idUnavailable reports that no directory is safe and has room. It never changes.
const idUnavailable = "private-dir-unavailable"

// A Dir is a private directory. Its methods can be called concurrently, except Close.
type Dir struct {
	parent *os.Root
	name   string
	root   *os.Root
	lock   int // a descriptor: a lost Dir does not release it
	remove func() error
}

// Create makes a private directory for need bytes, and removes the directories of ended
// processes of the same user. Without bases it uses shared memory, the runtime directory of the
// user, or else the temporary directory of the system. With bases it uses the first usable one,
// in memory or not.
//
// If systemd manages the logins of a user, it can remove the directory after the last logout of
// a user other than root. Then WriteFile returns an error that matches fs.ErrNotExist.
func Create(need int64, bases ...string) (*Dir, error) {
	candidates := defaultBases()
	if len(bases) > 0 {
		candidates = nil
		for _, path := range bases {
			candidates = append(candidates, base{path: path})
		}
	}
	return createIn(candidates, need)
}

func createIn(candidates []base, need int64) (*Dir, error) {
	var made *Dir
	var problems []string
	for _, b := range candidates {
		parent, err := b.openParent()
		if err == nil {
			removeEnded(parent)
			if made != nil {
				_ = parent.Close() // a directory of the last Create can be in any base
				continue
			}
			if made, err = b.makeDir(parent, need); err == nil {
				continue
			}
			_ = parent.Close() // nothing was written
		}
		problems = append(problems, b.path+": "+withoutPath(err).Error())
	}
	if made == nil {
		return nil, diag.Refuse(idUnavailable, "no directory for private files can be used: "+strings.Join(problems, "; "),
			"set TMPDIR to a directory with free space that belongs to your user and has mode 0700")
	}
	return made, nil
}

// withoutPath returns the cause of an error whose path the message already has.
func withoutPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// makeDir makes a directory in an open base. The Dir closes parent.
func (b base) makeDir(parent *os.Root, need int64) (*Dir, error) {
	if b.memory {
		if err := withDescriptor(parent, func(fd int) error { return checkMemory(fd, need) }); err != nil {
			return nil, err
		}
	}
	return makeDirIn(parent, randomName)
}

// Path returns the absolute path of the directory.
func (d *Dir) Path() string { return filepath.Join(d.parent.Name(), d.name) }

// WriteFile creates a file with mode 0600. An existing file is an error that matches
// fs.ErrExist, an invalid name one that matches fs.ErrInvalid.
func (d *Dir) WriteFile(name string, data []byte) error {
	if err := checkName(name); err != nil {
		return err
	}
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing a private file: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o600), f.Close()); err != nil {
		return fmt.Errorf("writing a private file: %w", errors.Join(err, d.root.Remove(name)))
	}
	return nil
}

// ReadFile reads a regular file of at most limit bytes; see package bounded. It follows no
// link.
func (d *Dir) ReadFile(name string, limit int64) ([]byte, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	data, err := d.readRegular(name, limit)
	if err != nil {
		return nil, fmt.Errorf("reading the private file %s: %w", name, withoutPath(err))
	}
	return data, nil
}

func (d *Dir) readRegular(name string, limit int64) ([]byte, error) {
	seen, err := d.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || !os.SameFile(seen, info) {
		return nil, errors.New("not a regular file")
	}
	return bounded.ReadAll(f, limit)
}

// List returns the sorted names of the regular files.
func (d *Dir) List() ([]string, error) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("listing the private files: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// Close removes the directory with all its content. Further calls return the same result. After
// an error, a later Create of any process removes the rest.
func (d *Dir) Close() error { return d.remove() }

func (d *Dir) removeOnce() func() error {
	return sync.OnceValue(func() error {
		err := errors.Join(d.removeTree(), d.root.Close(), d.parent.Close(), unix.Close(d.lock))
		if err != nil {
			return fmt.Errorf("removing the private directory %s: %w", d.Path(), err)
		}
		return nil
	})
}

// removeTree removes the directory, but not another file or directory in its place.
func (d *Dir) removeTree() error {
	info, err := d.parent.Lstat(d.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	own, err := d.root.Stat(".")
	if err != nil {
		return err
	}
	if !os.SameFile(info, own) {
		return errors.New("another program has replaced it")
	}
	return d.parent.RemoveAll(d.name)
}

// maxName is the longest file name in bytes.
const maxName = 255

func checkName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > maxName || strings.ContainsAny(name, "/\\\x00") {
		return fmt.Errorf("%.100q is not the name of a private file: %w", name, fs.ErrInvalid)
	}
	return nil
}
