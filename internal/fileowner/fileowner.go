// Package fileowner gives files to their user: under sudo, the user who called it.
package fileowner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"slipway.dev/slipway/internal/safefile"
)

// An Owner is a user and a group, by number. A nil Owner is the user who runs the
// program, who already owns the files.
type Owner struct{ UID, GID int }

// OwnerOf returns the owner of an existing file; nil means root.
func OwnerOf(path string) (*Owner, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
		return &Owner{UID: int(st.Uid), GID: int(st.Gid)}, nil
	}
	return nil, nil
}

// GiveFiles changes the owner of files; of a link itself, and not of its target. Links in the
// path are followed according to package safefile.
func (o *Owner) GiveFiles(paths ...string) error {
	if o == nil {
		return nil
	}
	var errs []error
	for _, path := range paths {
		if err := safefile.Lchown(path, o.UID, o.GID); err != nil {
			errs = append(errs, fmt.Errorf("changing the owner to user %d: %w", o.UID, err))
		}
	}
	return errors.Join(errs...)
}

// MakeDir creates a directory and its missing parents; the owner gets everything that it
// creates. Links are followed according to package safefile.
func (o *Owner) MakeDir(dir string, mode fs.FileMode) error {
	at, rest, err := safefile.Reach(dir)
	for err == nil && len(rest) > 0 {
		var next *os.Root
		next, err = o.createDirIn(at, rest[0], mode)
		err = errors.Join(err, at.Close())
		at, rest = next, rest[1:]
	}
	if at != nil {
		err = errors.Join(err, at.Close())
	}
	return err
}

// GiveMade changes the owner of paths that were missing and exist now.
func (o *Owner) GiveMade(missing []string) error {
	var errs []error
	for _, path := range missing {
		if err := o.GiveFiles(path); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// MissingPaths returns the path and its parents that do not exist yet: the paths that creating
// it will create.
func MissingPaths(path string) (missing []string) {
	for {
		if _, err := os.Lstat(path); err == nil || path == filepath.Dir(path) {
			return missing
		}
		missing = append(missing, path)
		path = filepath.Dir(path)
	}
}

// GiveTree gives the owner all files in a directory that belong to root, except the
// directories named in without. It follows no link out of the directory; missing files
// are ignored. A file is given only if all its names (hard links) are in the directory:
// otherwise it may be a file elsewhere.
func (o *Owner) GiveTree(dir string, without ...string) error {
	if o == nil {
		return nil
	}
	root, err := safefile.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("changing the owner to user %d: %w", o.UID, err)
	}
	defer func() { _ = root.Close() }() // nothing was written to it
	kept := map[string]bool{}
	for _, name := range without {
		kept[name] = true
	}
	seen := map[uint64]uint64{}
	err = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if kept[path] && e.IsDir() {
			return fs.SkipDir
		}
		if err := o.takeFile(root, path, seen); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("changing the owner of %s to user %d: %w", dir, o.UID, err)
	}
	return nil
}

// takeFile gives one file of a directory to the owner, if it belongs to root and has no
// unknown name.
func (o *Owner) takeFile(root *os.Root, path string, seen map[uint64]uint64) error {
	info, err := root.Lstat(path)
	if err != nil || !isOwnedByRoot(info) {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() {
		if seen[st.Ino]++; seen[st.Ino] < uint64(st.Nlink) { //nolint:unconvert // it has another type on other systems
			return nil
		}
	}
	return root.Lchown(path, o.UID, o.GID)
}

// CanTake reports whether a directory can be given to the owner, wherever links lead: it
// belongs to the owner, or to root inside a directory of the owner, as an interrupted run
// leaves it. Any other directory can have other content.
func (o *Owner) CanTake(dir string) bool {
	real, err := filepath.EvalSymlinks(dir)
	return err == nil && (isOwnedBy(real, o.UID) || BelongsToRoot(real) && isOwnedBy(filepath.Dir(real), o.UID))
}

// BelongsToRoot reports whether an existing file belongs to root.
func BelongsToRoot(path string) bool { return isOwnedBy(path, 0) }

func isOwnedBy(path string, uid int) bool {
	info, err := os.Stat(path)
	return err == nil && uidOf(info) == uid
}

func isOwnedByRoot(info fs.FileInfo) bool { return uidOf(info) == 0 }

// uidOf returns the owner of a file; -1 if it is not known.
func uidOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
