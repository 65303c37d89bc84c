package privatedir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// prefix begins the name of each private directory. Create removes only directories with it.
const prefix = "slipway-private-"

func randomName() string { return fmt.Sprintf("%s%d-%s", prefix, os.Getpid(), rand.Text()) }

// maxAttempts limits the attempts to make a directory. Another Create can remove it before it
// is locked, but only once for each Create that runs at the same time.
const maxAttempts = 1000

// errGone reports that another process has removed or locked a directory, or another file or
// directory has its name.
var errGone = errors.New("another process has removed or locked the directory")

// makeDirIn makes a directory and locks it. An existing file, directory or link with its name
// is not used.
func makeDirIn(parent *os.Root, newName func() string) (*Dir, error) {
	for range maxAttempts {
		name := newName()
		err := parent.Mkdir(name, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		lock, err := lockDir(parent, name)
		if errors.Is(err, errGone) {
			continue
		}
		if err != nil {
			return nil, errors.Join(err, parent.Remove(name))
		}
		d := &Dir{parent: parent, name: name, lock: lock}
		if err := d.openRoot(); err != nil {
			return nil, errors.Join(err, parent.Remove(name), unix.Close(lock))
		}
		d.remove = d.removeOnce()
		return d, nil
	}
	return nil, errGone
}

// openRoot opens the locked directory. No other user can replace it in its parent.
func (d *Dir) openRoot() error {
	if err := unix.Fchmod(d.lock, 0o700); err != nil { // the umask can have removed permissions
		return err
	}
	root, err := d.parent.OpenRoot(d.name)
	if err != nil {
		return err
	}
	d.root = root
	return nil
}

// lockDir opens and locks a directory of this user, and returns its descriptor. It follows no
// link, and waits for no pipe and no lock. The error is errGone if another process has the
// lock, or the directory was removed.
func lockDir(parent *os.Root, name string) (lock int, err error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	err = withDescriptor(parent, func(at int) error {
		err := retryInterrupted(func() (err error) { lock, err = unix.Openat(at, name, flags, 0); return err })
		if errors.Is(err, unix.ENOENT) {
			return errGone
		}
		if err != nil {
			return &fs.PathError{Op: "open", Path: filepath.Join(parent.Name(), name), Err: err}
		}
		if err := lockOpened(at, name, lock); err != nil {
			return errors.Join(err, unix.Close(lock))
		}
		return nil
	})
	return lock, err
}

// lockOpened locks an open directory, and checks that it still has its name: the process that
// had the lock before can have removed it.
func lockOpened(at int, name string, fd int) error {
	var opened, named unix.Stat_t
	if err := unix.Fstat(fd, &opened); err != nil {
		return err
	}
	if int(opened.Uid) != os.Geteuid() {
		return fmt.Errorf("the directory belongs to user %d", opened.Uid)
	}
	err := retryInterrupted(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errGone
	}
	if err != nil {
		return fmt.Errorf("locking the directory: %w", err)
	}
	err = retryInterrupted(func() error { return unix.Fstatat(at, name, &named, unix.AT_SYMLINK_NOFOLLOW) })
	if errors.Is(err, unix.ENOENT) || err == nil && (opened.Dev != named.Dev || opened.Ino != named.Ino) {
		return errGone
	}
	return err
}

// removeEnded removes the directories of ended processes of this user. After an error, the
// next Create tries again.
func removeEnded(parent *os.Root) {
	var names []string
	_ = withDescriptor(parent, func(fd int) (err error) {
		if hasReliableLocks(fd) {
			names, err = listDirs(parent)
		}
		return err
	})
	for _, name := range names {
		lock, err := lockDir(parent, name)
		if err != nil {
			continue // its process is running, or it is not a directory of this user
		}
		_ = parent.RemoveAll(name)
		_ = unix.Close(lock) // it was only locked
	}
}

// listDirs returns the names of private directories of this user. It keeps no other names, of
// which other users can make many.
func listDirs(parent *os.Root) (names []string, err error) {
	dir, err := parent.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for {
		some, err := dir.Readdirnames(256)
		for _, name := range some {
			if !strings.HasPrefix(name, prefix) {
				continue
			}
			if info, err := parent.Lstat(name); err == nil && info.IsDir() && uidOf(info) == os.Geteuid() {
				names = append(names, name)
			}
		}
		if err != nil { // io.EOF, or an error after which the next Create tries again
			return names, nil
		}
	}
}

// withDescriptor calls do with the descriptor of an open directory.
func withDescriptor(root *os.Root, do func(fd int) error) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return do(int(dir.Fd()))
}

// retryInterrupted repeats a system call while a signal interrupts it.
func retryInterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
