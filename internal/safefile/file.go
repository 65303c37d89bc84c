package safefile

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/fsync"
)

// withParent calls f with the parent directory of a path, and the last name.
func withParent(path string, follow bool, f func(dir *os.Root, name string) error) error {
	dir, rest, err := reachPath(path, follow)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // it is a directory: nothing is lost
	if len(rest) > 1 {
		return &fs.PathError{Op: "open", Path: path, Err: syscall.ENOENT}
	}
	return withPath(path, f(dir, rest[0]))
}

// Stat is os.Stat.
func Stat(path string) (info fs.FileInfo, err error) {
	err = withParent(path, true, func(dir *os.Root, name string) error { info, err = dir.Lstat(name); return err })
	return info, err
}

// Lstat is os.Lstat.
func Lstat(path string) (info fs.FileInfo, err error) {
	err = withParent(path, false, func(dir *os.Root, name string) error { info, err = dir.Lstat(name); return err })
	return info, err
}

// Readlink is os.Readlink.
func Readlink(path string) (target string, err error) {
	err = withParent(path, false, func(dir *os.Root, name string) error { target, err = dir.Readlink(name); return err })
	return target, err
}

// ResolveLinks returns the target of a path as a path without links; the target can be
// missing.
func ResolveLinks(path string) (string, error) {
	dir, rest, err := Reach(path)
	if err != nil {
		return "", err
	}
	_ = dir.Close() // it was only read
	return filepath.Join(append([]string{dir.Name()}, rest...)...), nil
}

// OpenRoot is os.OpenRoot. It does not wait for a pipe.
func OpenRoot(path string) (root *os.Root, err error) {
	err = withParent(path, true, func(dir *os.Root, name string) error {
		info, err := dir.Lstat(name)
		if err == nil && !info.IsDir() {
			err = &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
		}
		if err == nil {
			root, _, err = enterDir(dir, name, info)
		}
		return err
	})
	return root, err
}

// ReadDir is os.ReadDir.
func ReadDir(path string) ([]fs.DirEntry, error) {
	root, err := OpenRoot(path)
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(root.FS(), ".")
	return entries, withPath(path, errors.Join(err, root.Close()))
}

// Open opens a regular file to read. It does not wait for a pipe.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY, 0) }

// OpenFile is os.OpenFile for regular files. To write, root does not open a file with a
// second name (a hard link), which can be a file elsewhere.
func OpenFile(path string, flag int, perm fs.FileMode) (f *os.File, err error) {
	err = withParent(path, flag&os.O_EXCL == 0, func(dir *os.Root, name string) error {
		if flag&os.O_CREATE != 0 {
			if f, err = dir.OpenFile(name, flag|os.O_EXCL, perm); err == nil || flag&os.O_EXCL != 0 || !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
		f, err = openExisting(dir, name, flag&^os.O_CREATE)
		return err
	})
	return f, err
}

func openExisting(dir *os.Root, name string, flag int) (*os.File, error) {
	there, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir.Name(), name)
	if !there.Mode().IsRegular() { // never opened: it may be a pipe or a device
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	f, err := dir.OpenFile(name, flag&^os.O_TRUNC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !os.SameFile(there, info) {
		err = &ForeignError{path, "changed while it was opened"}
	}
	if writes := flag&(os.O_WRONLY|os.O_RDWR) != 0; err == nil && writes && os.Geteuid() == 0 && linkCount(info) != 1 {
		err = &ForeignError{path, "has a second name (a hard link)"}
	}
	if err == nil && flag&os.O_TRUNC != 0 {
		err = f.Truncate(0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// linkCount returns how many names a file has.
func linkCount(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink) //nolint:unconvert // it has another type on other systems
	}
	return 1
}

// ReadFile reads a regular file of at most limit bytes; see package bounded.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := bounded.ReadAll(f, limit)
	var over *bounded.LimitError
	if errors.As(err, &over) {
		err = &fs.PathError{Op: "read", Path: path, Err: over}
	}
	return data, err
}

// WriteFile replaces a file atomically. A crash of the machine can leave it empty.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	return withParent(path, true, func(dir *os.Root, name string) error {
		f, err := createTemp(dir, ".new-*")
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		err = errors.Join(err, f.Chmod(perm), f.Close())
		if err == nil {
			err = dir.Rename(filepath.Base(f.Name()), name)
		}
		if err != nil {
			return errors.Join(err, dir.Remove(filepath.Base(f.Name())))
		}
		return nil
	})
}

// CreateTemp is os.CreateTemp. Remove removes the file, Commit gives it its name.
func CreateTemp(dir, pattern string) (f *os.File, err error) {
	root, err := OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // it is a directory: nothing is lost
	f, err = createTemp(root, pattern)
	return f, withPath(dir, err)
}

func createTemp(root *os.Root, pattern string) (*os.File, error) {
	return root.OpenFile(temporaryName(pattern), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

func temporaryName(pattern string) string { return strings.Replace(pattern, "*", rand.Text(), 1) }

// MkdirTemp is os.MkdirTemp with a mode, whatever the umask.
func MkdirTemp(dir, pattern string, perm fs.FileMode) (path string, err error) {
	path = filepath.Join(dir, temporaryName(pattern))
	return path, withParent(path, false, func(dir *os.Root, name string) error {
		if err := dir.Mkdir(name, 0o700); err != nil {
			return err
		}
		made, err := dir.OpenRoot(name)
		if err != nil {
			return err
		}
		return errors.Join(made.Chmod(".", perm), made.Close())
	})
}

// MkdirAll is os.MkdirAll.
func MkdirAll(path string, perm fs.FileMode) error {
	dir, rest, err := reachPath(path, true)
	for err == nil && len(rest) > 0 {
		var next *os.Root
		if err = dir.Mkdir(rest[0], perm); err == nil || errors.Is(err, fs.ErrExist) {
			next, err = enterCreated(dir, rest[0])
		}
		err = errors.Join(err, dir.Close())
		dir, rest = next, rest[1:]
	}
	if dir != nil {
		err = errors.Join(err, dir.Close())
	}
	return withPath(path, err)
}

func enterCreated(dir *os.Root, name string) (*os.Root, error) {
	info, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
	}
	next, _, err := enterDir(dir, name, info)
	return next, err
}

// Mkdir is os.Mkdir.
func Mkdir(path string, perm fs.FileMode) error {
	return withParent(path, false, func(dir *os.Root, name string) error { return dir.Mkdir(name, perm) })
}

// Remove is os.Remove.
func Remove(path string) error {
	return withParent(path, false, func(dir *os.Root, name string) error { return dir.Remove(name) })
}

// RemoveAll is os.RemoveAll.
func RemoveAll(path string) error {
	err := withParent(path, false, func(dir *os.Root, name string) error { return dir.RemoveAll(name) })
	if errors.Is(err, fs.ErrNotExist) { // of a directory above
		return nil
	}
	return err
}

// Symlink is os.Symlink.
func Symlink(target, path string) error {
	return withParent(path, false, func(dir *os.Root, name string) error { return dir.Symlink(target, name) })
}

// Link is os.Link.
func Link(from, to string) error {
	return withParents(from, to, func(dir *os.Root, old string, todir *os.Root, name string) error {
		return withDescriptors(dir, todir, func(fd, tofd int) error { return unix.Linkat(fd, old, tofd, name, 0) })
	})
}

// Rename is os.Rename.
func Rename(from, to string) error {
	return withParents(from, to, func(dir *os.Root, old string, todir *os.Root, name string) error {
		return withDescriptors(dir, todir, func(fd, tofd int) error { return unix.Renameat(fd, old, tofd, name) })
	})
}

// RenameSynced renames a file, a link or a directory, and writes the new name to
// disk. The content must be on disk already.
func RenameSynced(from, to string) error {
	if err := Rename(from, to); err != nil {
		return err
	}
	if filepath.Dir(from) != filepath.Dir(to) {
		if err := SyncDir(filepath.Dir(from)); err != nil {
			return err
		}
	}
	return SyncDir(filepath.Dir(to))
}

// SyncDir writes the names in a directory to disk.
func SyncDir(dir string) error {
	return withRoot(dir, func(root *os.Root) error { return fsync.SyncDirIn(root, ".") })
}

// SyncFiles writes the files in a directory and their names to disk.
func SyncFiles(dir string) error { return withRoot(dir, fsync.SyncFiles) }

// withRoot calls f with an open directory.
func withRoot(dir string, f func(*os.Root) error) error {
	root, err := OpenRoot(dir)
	if err != nil {
		return err
	}
	return withPath(dir, errors.Join(f(root), root.Close()))
}

// Commit writes the content of a new file to disk, closes the file and renames
// it; see fsync.Commit.
func Commit(f *os.File, to string) error {
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return RenameSynced(f.Name(), to)
}

// withParents is in for two paths, neither of which is followed.
func withParents(from, to string, f func(dir *os.Root, old string, todir *os.Root, name string) error) error {
	return withParent(from, false, func(dir *os.Root, old string) error {
		var failed error // of f: it also concerns the first path
		err := withParent(to, false, func(todir *os.Root, name string) error {
			failed = f(dir, old, todir, name)
			return nil
		})
		if failed != nil {
			return &os.LinkError{Op: "rename or link", Old: from, New: to, Err: failed}
		}
		return err
	})
}

// withDescriptors calls f with the descriptors of two directories.
func withDescriptors(dir, todir *os.Root, f func(fd, tofd int) error) error {
	from, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := todir.Open(".")
	if err != nil {
		return err
	}
	defer to.Close()
	return f(int(from.Fd()), int(to.Fd()))
}

// Lchown is os.Lchown. Root does not give away a file with a second name (a hard link),
// which can be a file elsewhere.
func Lchown(path string, uid, gid int) error {
	return withParent(path, false, func(dir *os.Root, name string) error { return changeOwner(dir, name, uid, gid) })
}

func changeOwner(dir *os.Root, name string, uid, gid int) error {
	info, err := dir.Lstat(name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return dir.Lchown(name, uid, gid)
	}
	f, err := openExisting(dir, name, os.O_RDONLY)
	if err != nil {
		return err
	}
	info, err = f.Stat()
	if err == nil && linkCount(info) != 1 {
		err = &ForeignError{filepath.Join(dir.Name(), name), "has a second name (a hard link)"}
	}
	if err == nil {
		err = f.Chown(uid, gid)
	}
	return errors.Join(err, f.Close())
}

// RootOnly reports whether an existing file and all its parent directories belong to
// root, and no other user can write to them.
func RootOnly(path string) bool {
	path, err := ResolveLinks(path)
	if err != nil {
		return false
	}
	for ; ; path = filepath.Dir(path) {
		info, err := Lstat(path)
		if err != nil || uidOf(info) != 0 || info.Mode().Perm()&0o022 != 0 {
			return false
		}
		if path == filepath.Dir(path) {
			return true
		}
	}
}
