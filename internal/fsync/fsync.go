// Package fsync makes changes to files survive a power loss.
package fsync

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// SyncDir writes the names in a directory to disk. File systems that cannot do that,
// such as /proc, are not an error.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return syncAndClose(d)
}

// SyncDirIn writes the names in a directory below root to disk.
func SyncDirIn(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	return syncAndClose(d)
}

// syncAndClose writes the names in an open directory to disk and closes the directory.
func syncAndClose(d *os.File) error {
	err := d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// Rename renames a file, a link or a directory and writes the new name to disk.
// The content must be on disk already: else a crash can leave the new name with
// no content.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	if filepath.Dir(from) != filepath.Dir(to) {
		if err := SyncDir(filepath.Dir(from)); err != nil {
			return err
		}
	}
	return SyncDir(filepath.Dir(to))
}

// atOnce is how many files are synced at a time: a file system writes its journal
// once for all that wait.
const atOnce = 32

// SyncFiles writes the files in a directory and their names to disk. It does not
// descend into directories.
func SyncFiles(dir *os.Root) error {
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, e := range entries {
		if e.Type().IsRegular() {
			g.Go(func() error { return syncFile(dir, e.Name()) })
		}
	}
	return errors.Join(g.Wait(), SyncDirIn(dir, "."))
}

func syncFile(dir *os.Root, name string) error {
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Commit writes the content of a new file to disk, closes the file and renames it.
// After a crash, the name has the old content or the new. The file is closed in
// any case, and is not removed after an error.
func Commit(f *os.File, to string) error {
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return Rename(f.Name(), to)
}
