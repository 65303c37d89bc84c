// Package owner gives files to the person they are made for: under sudo, the
// one who called it.
package owner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"slipway.dev/slipway/internal/safefile"
)

// An Owner is a user and a group, by number. A nil Owner is whoever runs the
// program, who is given nothing: what they make is theirs.
type Owner struct{ UID, GID int }

// Of returns the owner of a file that is there; nil is root.
func Of(path string) (*Owner, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
		return &Owner{UID: int(st.Uid), GID: int(st.Gid)}, nil
	}
	return nil, nil
}

// Give makes files the owner's; a link itself, and not where it leads. Links on
// the way are followed as package safefile does.
func (o *Owner) Give(paths ...string) error {
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

// MakeDir makes a directory, and those above it that are not there; all that
// it makes is the owner's. Links are followed as package safefile does.
func (o *Owner) MakeDir(dir string, mode fs.FileMode) error {
	at, rest, err := safefile.Reach(dir)
	for err == nil && len(rest) > 0 {
		var next *os.Root
		next, err = o.makeIn(at, rest[0], mode)
		err = errors.Join(err, at.Close())
		at, rest = next, rest[1:]
	}
	if at != nil {
		err = errors.Join(err, at.Close())
	}
	return err
}

// GiveMade makes the owner's what was missing and is there now.
func (o *Owner) GiveMade(missing []string) error {
	var errs []error
	for _, path := range missing {
		if err := o.Give(path); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Missing are the path and the directories above it that are not there yet:
// what making the path will make.
func Missing(path string) (missing []string) {
	for {
		if _, err := os.Lstat(path); err == nil || path == filepath.Dir(path) {
			return missing
		}
		missing = append(missing, path)
		path = filepath.Dir(path)
	}
}

// GiveTree makes the owner's what root owns of a directory, without the
// directories in it that are named. It follows no links out of it; what
// is not there, or goes meanwhile, is fine. A file is given if all its names (hard
// links) are in the directory: else it may be a file elsewhere.
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
		if err := o.take(root, path, seen); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("changing the owner of %s to user %d: %w", dir, o.UID, err)
	}
	return nil
}

// take makes one file of a directory the owner's, if it is root's and has no name
// that was not seen.
func (o *Owner) take(root *os.Root, path string, seen map[uint64]uint64) error {
	info, err := root.Lstat(path)
	if err != nil || !isRoots(info) {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() {
		if seen[st.Ino]++; seen[st.Ino] < uint64(st.Nlink) { //nolint:unconvert // it has another type on other systems
			return nil
		}
	}
	return root.Lchown(path, o.UID, o.GID)
}

// Holds says whether a directory is the owner's to have, wherever links lead:
// theirs, or root's in one of theirs, as a run that was cut leaves it. Any
// other may hold other things.
func (o *Owner) Holds(dir string) bool {
	real, err := filepath.EvalSymlinks(dir)
	return err == nil && (isOf(real, o.UID) || IsRoots(real) && isOf(filepath.Dir(real), o.UID))
}

// IsRoots says whether a file that is there is root's.
func IsRoots(path string) bool { return isOf(path, 0) }

func isOf(path string, uid int) bool {
	info, err := os.Stat(path)
	return err == nil && uidOf(info) == uid
}

func isRoots(info fs.FileInfo) bool { return uidOf(info) == 0 }

// uidOf is whose a file is; -1 is not known.
func uidOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
