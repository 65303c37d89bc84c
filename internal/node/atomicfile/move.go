//go:build linux

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/fsync"
)

// MovePath moves a file or a tree with all its metadata. Across file systems it copies first,
// renames the complete copy, and then removes the original. A tree with sockets or
// devices can only move within one file system.
func (d Disk) MovePath(from, to string) error {
	err := os.Rename(from, to)
	if errors.Is(err, unix.EXDEV) {
		err = d.moveAcross(from, to)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(fsync.SyncDir(filepath.Dir(from)), fsync.SyncDir(filepath.Dir(to))); err != nil {
		return err
	}
	d.RunAfter("move " + from)
	return nil
}

func (d Disk) moveAcross(from, to string) error {
	temp := TempPath(to)
	if err := os.RemoveAll(temp); err != nil {
		return err
	}
	if err := copyTree(from, temp); err != nil {
		return errors.Join(err, os.RemoveAll(temp))
	}
	if err := os.Rename(temp, to); err != nil {
		return err
	}
	if err := fsync.SyncDir(filepath.Dir(to)); err != nil {
		return err
	}
	d.RunAfter("copy " + from)
	return os.RemoveAll(from)
}

func copyTree(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	m, err := ReadMeta(from)
	if err != nil {
		return err
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		if err := os.Symlink(target, to); err != nil {
			return err
		}
		return os.Lchown(to, m.UID, m.GID)
	case info.Mode().IsRegular():
		src, err := Open(from)
		if err != nil {
			return err
		}
		defer src.Close()
		return Disk{}.ReplaceFile(to, src, m)
	case info.IsDir():
		return copyDir(from, to, m)
	}
	return &fs.PathError{Op: "copy", Path: from, Err: unix.ENOTSUP}
}

func copyDir(from, to string, m Meta) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := copyTree(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	if err := SetMeta(to, m); err != nil {
		return err
	}
	return fsync.SyncDir(to)
}
