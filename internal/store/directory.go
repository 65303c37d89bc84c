package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/fsync"
	"slipway.dev/slipway/internal/records"
)

// A directory is a state directory: it reads and writes files below it. All stores by
// subject share it.
type directory struct {
	home  string
	owner *fileowner.Owner // the owner of new files and directories
	// rename renames files in a directory; tests replace it with a crash.
	rename func(from, to string) error

	mu    sync.Mutex
	roots map[string]*os.Root
}

// apart are directories below the home that may be links to another disk. Under sudo,
// root works in directories that belong to another user, who can place links there. So
// every file of the store is opened through an os.Root: one for the home and one for each
// of these directories.
var apart = []string{"clusters", "operations", "backups"}

// openRoot opens the home ("") or a directory of apart, once. If making is false, a missing
// directory is fs.ErrNotExist.
func (s *directory) openRoot(part string, making bool) (*os.Root, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.roots[part]; r != nil {
		return r, nil
	}
	open := s.owner.OpenRoot
	if making {
		open = func(dir string) (*os.Root, error) { return s.owner.MakeRoot(dir, 0o700) }
	}
	r, err := open(s.joinHome(part))
	if err != nil {
		return nil, err
	}
	s.roots[part] = r
	return r, nil
}

// locatePath returns the root for a path of the store, and the path relative to it.
func (s *directory) locatePath(path string, making bool) (*os.Root, string, error) {
	rel, err := filepath.Rel(s.home, path)
	if err != nil {
		return nil, "", err
	}
	part, rest, _ := strings.Cut(rel, "/")
	for _, a := range apart {
		if part == a {
			root, err := s.openRoot(part, making)
			return root, filepath.Clean(rest), err
		}
	}
	root, err := s.openRoot("", making)
	return root, rel, err
}

// withExisting calls f with the root of an existing path, and adds the full path to errors.
func (s *directory) withExisting(path string, f func(root *os.Root, name string) error) error {
	return s.withRoot(path, false, f)
}

func (s *directory) withRoot(path string, making bool, f func(root *os.Root, name string) error) error {
	root, name, err := s.locatePath(path, making)
	if err != nil {
		return withPath(path, err)
	}
	if err := f(root, name); err != nil {
		var errno syscall.Errno
		if link := fileowner.LinkIn(root, name); link != "" && !errors.As(err, &errno) {
			return foreignFileError(&fileowner.ForeignError{
				Path:   filepath.Join(root.Name(), link),
				Reason: "is a symbolic link that leads out of the directory",
			})
		}
		return withPath(path, err)
	}
	return nil
}

// withPath adds the full path to errors of an os.Root, which have only the relative path.
func withPath(path string, err error) error {
	var f *fileowner.ForeignError
	if errors.As(err, &f) {
		return foreignFileError(f)
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		return &fs.PathError{Op: p.Op, Path: path, Err: p.Err}
	}
	return err
}

// makeDir creates a directory and its missing parents, sets their owner, and syncs them.
func (s *directory) makeDir(dir string) error {
	err := s.withRoot(dir, true, func(root *os.Root, name string) error {
		for i := range strings.Split(name, "/") {
			if err := s.mkdirIn(root, filepath.Join(strings.Split(name, "/")[:i+1]...)); err != nil {
				return err
			}
		}
		return nil
	})
	return addWriteHint(dir, err)
}

func (s *directory) mkdirIn(root *os.Root, name string) error {
	switch info, err := root.Stat(name); {
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := root.Mkdir(name, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil // another process was faster
		}
		return err
	}
	if s.owner != nil {
		if err := root.Lchown(name, s.owner.UID, s.owner.GID); err != nil {
			return err
		}
	}
	return fsync.SyncDirIn(root, filepath.Dir(name))
}

func (s *directory) readFile(path string) (b []byte, err error) {
	err = s.withExisting(path, func(root *os.Root, name string) error {
		f, err := openRegular(root, name)
		if err != nil {
			return err
		}
		defer f.Close()
		b, err = bounded.ReadAll(f, bounded.Record)
		return err
	})
	return b, err
}

func (s *directory) readDir(path string) (entries []fs.DirEntry, err error) {
	err = s.withExisting(path, func(root *os.Root, name string) error { entries, err = fs.ReadDir(root.FS(), name); return err })
	return entries, err
}

func (s *directory) statFile(path string) (info fs.FileInfo, err error) {
	err = s.withExisting(path, func(root *os.Root, name string) error { info, err = root.Stat(name); return err })
	return info, err
}

func (s *directory) openFile(path string) (f *os.File, err error) {
	err = s.withExisting(path, func(root *os.Root, name string) error { f, err = openRegular(root, name); return err })
	return f, err
}

// openRegular opens a file to read it. It does not wait for the other end of a pipe.
func openRegular(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openOwn opens a file that the store appends to, and creates it if it does not exist;
// see owner.OpenFile.
func (s *directory) openOwn(path string) (f *os.File, err error) {
	err = s.withExisting(path, func(root *os.Root, name string) error { f, err = s.owner.OpenFile(root, name, 0); return err })
	return f, addWriteHint(path, err)
}

func (s *directory) removeFile(path string) error {
	return s.withExisting(path, func(root *os.Root, name string) error { return root.Remove(name) })
}

func (s *directory) removeAll(path string) error {
	err := s.withExisting(path, func(root *os.Root, name string) error { return root.RemoveAll(name) })
	if errors.Is(err, fs.ErrNotExist) { // the parent directory is missing
		return nil
	}
	return err
}

// syncDir syncs a directory.
func (s *directory) syncDir(dir string) error { return s.withExisting(dir, fsync.SyncDirIn) }

// renameIn is os.Rename within one directory.
func (s *directory) renameIn(from, to string) error {
	return s.withExisting(from, func(root *os.Root, name string) error {
		return root.Rename(name, filepath.Join(filepath.Dir(name), filepath.Base(to)))
	})
}

func (s *directory) joinHome(elem ...string) string {
	return filepath.Join(append([]string{s.home}, elem...)...)
}

func (s *directory) clusterPath(name string, elem ...string) string {
	return s.joinHome(append([]string{"clusters", name}, elem...)...)
}

func (s *directory) operationPath(id string, elem ...string) string {
	return s.joinHome(append([]string{"operations", id}, elem...)...)
}

// putFile writes a file of a cluster, or removes it if there is no content.
func (s *directory) putFile(name, file string, content []byte) error {
	if len(content) > 0 {
		return s.writeFile(s.clusterPath(name, file), content)
	}
	if err := s.removeFile(s.clusterPath(name, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readClusterFile returns a file of a cluster.
func (s *directory) readClusterFile(name, file string) ([]byte, error) {
	if err := records.CheckName(name); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	b, err := s.readFile(s.clusterPath(name, file))
	if errors.Is(err, fs.ErrNotExist) {
		err = records.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s of cluster %s: %w", file, name, err)
	}
	return b, nil
}
