package fileowner

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
	"slipway.dev/slipway/internal/safefile"
)

// A ForeignError reports a file or directory that root does not use on behalf of an
// owner: it belongs to another user, or a link leads to it.
type ForeignError = safefile.ForeignError

// OpenRoot opens a directory for work on behalf of the owner: no operation on the result
// leaves that directory, whatever links it has. For an owner, links of users are followed
// according to package safefile.
func (o *Owner) OpenRoot(dir string) (*os.Root, error) {
	if o != nil {
		return safefile.OpenRoot(dir)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() { // os.OpenRoot would wait for the other end of a pipe
		return nil, &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	return os.OpenRoot(dir)
}

// MakeParent creates the directories of a file, all owned by the owner, and opens the
// last one. It follows links according to package safefile, also a link at the file
// itself, and returns the name that the file has there.
func (o *Owner) MakeParent(path string, mode fs.FileMode) (dir *os.Root, name string, err error) {
	dir, rest, err := safefile.Reach(path)
	for err == nil && len(rest) > 1 {
		var next *os.Root
		next, err = o.createDirIn(dir, rest[0], mode)
		err = errors.Join(err, dir.Close())
		dir, rest = next, rest[1:]
	}
	if err != nil {
		return nil, "", err
	}
	return dir, rest[0], nil
}

// MakeRoot creates a directory and its missing parents, and opens it like OpenRoot. The
// owner gets everything that it creates, and it is synced to disk.
func (o *Owner) MakeRoot(dir string, mode fs.FileMode) (*os.Root, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	missing := MissingPaths(dir)
	if len(missing) == 0 {
		return o.OpenRoot(dir)
	}
	root, err := o.OpenRoot(filepath.Dir(missing[len(missing)-1]))
	if err != nil {
		return nil, err
	}
	for _, path := range slices.Backward(missing) {
		next, err := o.createDirIn(root, filepath.Base(path), mode)
		if err = errors.Join(err, root.Close()); err != nil {
			return nil, err
		}
		root = next
	}
	return root, nil
}

// createDirIn creates one directory and opens it. Another process may be faster.
func (o *Owner) createDirIn(root *os.Root, name string, mode fs.FileMode) (*os.Root, error) {
	err := root.Mkdir(name, mode)
	if err == nil && o != nil {
		err = root.Lchown(name, o.UID, o.GID)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := fsync.SyncDirIn(root, "."); err != nil {
		return nil, err
	}
	return root.OpenRoot(name)
}

// OpenFile opens a file in a directory for reading and writing, with more flags such as
// os.O_APPEND; a new one has mode 0600. The owner gets the file. It returns a
// *ForeignError for a link or a file that is not regular, and on behalf of an owner also
// for a file with a second name or of another user.
func (o *Owner) OpenFile(root *os.Root, name string, flag int) (*os.File, error) {
	f, err := root.OpenFile(name, flag|os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		f, err = o.openExisting(root, name, flag)
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

// ReplaceFile replaces a file atomically: the content is written next to it and then
// renamed. An existing file keeps its mode. The owner gets the file.
func (o *Owner) ReplaceFile(path string, content []byte, mode fs.FileMode) (err error) {
	dir, err := o.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	name, temp := filepath.Base(path), ".tmp-"+rand.Text()
	there, err := dir.Lstat(name)
	if err == nil && !there.Mode().IsRegular() {
		return &ForeignError{Path: path, Reason: "is " + kindOf(there)}
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
	return fsync.SyncDirIn(dir, ".")
}

func (o *Owner) openExisting(root *os.Root, name string, flag int) (*os.File, error) {
	path := filepath.Join(root.Name(), name)
	there, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !there.Mode().IsRegular() { // never opened: it may be a pipe or a device
		return nil, &ForeignError{Path: path, Reason: "is " + kindOf(there)}
	}
	f, err := root.OpenFile(name, flag|os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !os.SameFile(there, info) {
		err = &ForeignError{Path: path, Reason: "changed while it was opened"}
	}
	if err == nil {
		err = o.checkOwned(path, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkOwned rejects a file that may also belong to another user.
func (o *Owner) checkOwned(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case o == nil || !ok:
	case st.Uid != 0 && int(st.Uid) != o.UID:
		return &ForeignError{Path: path, Reason: fmt.Sprintf("belongs to user %d", st.Uid)}
	case st.Nlink != 1:
		return &ForeignError{Path: path, Reason: "has a second name (a hard link)"}
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

// CheckLinks rejects a directory with entries, or entries of entries, that are links
// which package safefile does not follow, before anything is done. A missing directory is
// fine.
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
		var foreign *ForeignError
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case e.Type()&fs.ModeSymlink != 0:
			if _, err := safefile.Stat(filepath.Join(dir, path)); errors.As(err, &foreign) {
				return foreign
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
