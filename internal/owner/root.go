package owner

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"slipway.dev/slipway/internal/fsync"
)

// A ForeignError is a file or directory that root does not use on behalf of
// an owner: it belongs to another user, or a link leads to it.
type ForeignError struct{ Path, Reason string }

func (e *ForeignError) Error() string { return e.Path + " " + e.Reason }

// OpenRoot opens a directory for work on behalf of the owner: nothing that is
// done by the result leaves that directory, whatever links are in it. A
// directory of another user is refused with a *ForeignError if a link that is
// not root's leads to it.
func (o *Owner) OpenRoot(dir string) (*os.Root, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() { // os.OpenRoot would wait for the other end of a pipe
		return nil, &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	root, err := os.OpenRoot(dir)
	if err != nil || o == nil {
		return root, err
	}
	opened, err := root.Stat(".")
	if err == nil && uidOf(opened) != o.UID && !straight(dir, opened) {
		err = &ForeignError{dir, fmt.Sprintf("leads to a directory of user %d by a symbolic link", uidOf(opened))}
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// MakeRoot makes a directory, with the directories above it that are missing,
// and opens it as OpenRoot does. All that it makes is the owner's, and on disk.
func (o *Owner) MakeRoot(dir string, mode fs.FileMode) (*os.Root, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	missing := Missing(dir)
	if len(missing) == 0 {
		return o.OpenRoot(dir)
	}
	root, err := o.OpenRoot(filepath.Dir(missing[len(missing)-1]))
	if err != nil {
		return nil, err
	}
	for _, path := range slices.Backward(missing) {
		next, err := o.makeIn(root, filepath.Base(path), mode)
		if err = errors.Join(err, root.Close()); err != nil {
			return nil, err
		}
		root = next
	}
	return root, nil
}

// makeIn makes one directory and opens it. Another process may be faster.
func (o *Owner) makeIn(root *os.Root, name string, mode fs.FileMode) (*os.Root, error) {
	err := root.Mkdir(name, mode)
	if err == nil && o != nil {
		err = root.Lchown(name, o.UID, o.GID)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := fsync.Root(root, "."); err != nil {
		return nil, err
	}
	return root.OpenRoot(name)
}

// straight reports whether a path leads to a directory without any link that
// another user than root has made.
func straight(path string, to fs.FileInfo) bool {
	path, err := filepath.Abs(path)
	for range 40 { // links, as in the kernel
		if err != nil {
			return false
		}
		var at fs.FileInfo
		if path, at, err = walk(path); at != nil {
			return err == nil && os.SameFile(at, to)
		}
	}
	return false
}

// walk opens the directories of a path one after the other and returns the
// last one. At a link of root's it returns the path with the target in the
// place of the link; a link of another user is an error.
func walk(path string) (instead string, at fs.FileInfo, err error) {
	root, err := os.OpenRoot("/")
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	names := strings.Split(strings.Trim(path, "/"), "/")
	for i, name := range names {
		if name == "" {
			continue
		}
		info, err := root.Lstat(name)
		switch {
		case err != nil:
			return "", nil, err
		case info.Mode()&fs.ModeSymlink == 0:
		case !isRoots(info):
			return "", nil, &ForeignError{path, "has a symbolic link of a user"}
		default:
			target, err := root.Readlink(name)
			if !filepath.IsAbs(target) {
				target = "/" + filepath.Join(append(slices.Clone(names[:i]), target)...)
			}
			return filepath.Join(append([]string{target}, names[i+1:]...)...), nil, err
		}
		next, err := root.OpenRoot(name)
		if err != nil {
			return "", nil, err
		}
		_ = root.Close() // it was only read
		root = next
		if opened, err := root.Stat("."); err != nil || !os.SameFile(info, opened) {
			return "", nil, errors.Join(err, &ForeignError{path, "changes while it is opened"})
		}
	}
	at, err = root.Stat(".")
	return "", at, err
}

// OpenFile opens a file in a directory to read and write, with more flags such
// as os.O_APPEND; a new one has mode 0600. The file becomes the owner's. It is
// refused with a *ForeignError if it is a link or no regular file, and on
// behalf of an owner also if it has a second name or another user's.
func (o *Owner) OpenFile(root *os.Root, name string, flag int) (*os.File, error) {
	f, err := root.OpenFile(name, flag|os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		f, err = o.openThere(root, name, flag)
	}
	if err != nil {
		return nil, err
	}
	if o != nil {
		if err := f.Chown(o.UID, o.GID); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// ReplaceFile replaces a file as a whole, or leaves it as it was: the content
// is written next to it and then takes its name. A file that was there keeps
// its mode. The file becomes the owner's.
func (o *Owner) ReplaceFile(path string, content []byte, mode fs.FileMode) (err error) {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	name, temp := filepath.Base(path), ".tmp-"+rand.Text()
	there, err := dir.Lstat(name)
	if err == nil && !there.Mode().IsRegular() {
		return &ForeignError{path, "is " + kindOf(there)}
	}
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && there != nil {
		err = f.Chmod(there.Mode().Perm())
	}
	if err == nil && o != nil {
		err = f.Chown(o.UID, o.GID)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = dir.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, dir.Remove(temp))
	}
	return fsync.Root(dir, ".")
}

func (o *Owner) openThere(root *os.Root, name string, flag int) (*os.File, error) {
	path := filepath.Join(root.Name(), name)
	there, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !there.Mode().IsRegular() { // never opened: it may be a pipe or a device
		return nil, &ForeignError{path, "is " + kindOf(there)}
	}
	f, err := root.OpenFile(name, flag|os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !os.SameFile(there, info) {
		err = &ForeignError{path, "changes while it is opened"}
	}
	if err == nil {
		err = o.check(path, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// check refuses a file that may be somebody else's too.
func (o *Owner) check(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case o == nil || !ok:
	case st.Uid != 0 && int(st.Uid) != o.UID:
		return &ForeignError{path, fmt.Sprintf("belongs to user %d", st.Uid)}
	case st.Nlink != 1:
		return &ForeignError{path, "has a second name (a hard link)"}
	}
	return nil
}

func kindOf(info fs.FileInfo) string {
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return "a symbolic link"
	case info.IsDir():
		return "a directory"
	}
	return "not a regular file"
}

// CheckLinks refuses a directory of which entries, or their entries, are links
// that lead out of it: root would write there for the owner. One that is
// missing is fine.
func (o *Owner) CheckLinks(dir string) error {
	if o == nil {
		return nil
	}
	root, err := o.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written to it
	return fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		var errno syscall.Errno
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case e.Type()&fs.ModeSymlink != 0:
			if _, err := root.Stat(path); err != nil && !errors.As(err, &errno) {
				return &ForeignError{filepath.Join(dir, path), "is a symbolic link that leads out of the directory"}
			}
		case e.IsDir() && strings.Count(path, "/") > 0:
			return fs.SkipDir
		}
		return nil
	})
}

// LinkIn returns the first part of a name in a directory that is a symbolic
// link, or "".
func LinkIn(root *os.Root, name string) string {
	parts := strings.Split(filepath.Clean(name), "/")
	for i := range parts {
		part := filepath.Join(parts[:i+1]...)
		if info, err := root.Lstat(part); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return part
		}
	}
	return ""
}
