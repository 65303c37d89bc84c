// Package bundlestore lists the bundles in a cache, keeps bundles that operations use, and removes others.
package bundlestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/safefile"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	idInUse     = "bundle-in-use"
	idAmbiguous = "bundle-ambiguous"
)

// The directories of a cache with bundles: bundles that clusters find by their version, and bundles that were unpacked from
// a file or a registry.
var directories = []string{"bundles", "unpacked"}

// An Entry is a bundle in a cache.
type Entry struct {
	// Path is its directory.
	Path string
	// Names are the names by which clusters find it: version and architectures ("v1.37.1_amd64").
	Names []string
	// Bundle is nil if the bundle is damaged. Problem is the reason.
	Bundle  *bundle.Bundle
	Problem error
	// Used is the time of the last operation with the bundle, or of its arrival.
	Used time.Time
	// InUse reports whether an operation uses the bundle now.
	InUse bool
}

// Size returns the size in bytes, 0 if the bundle is damaged. Content that several bundles share counts for each.
func (e *Entry) Size() int64 {
	if e.Bundle == nil {
		return 0
	}
	return e.Bundle.Size()
}

// List returns the bundles in a cache, the last used first.
func List(ctx context.Context, cache string) ([]Entry, error) {
	var out []Entry
	for _, below := range directories {
		list, err := listDirectory(ctx, cache, filepath.Join(cache, below))
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return b.Used.Compare(a.Used) })
	return out, nil
}

func listDirectory(ctx context.Context, cache, dir string) (out []Entry, err error) {
	entries, err := safefile.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the bundles of the cache: %w", err)
	}
	names := map[string][]string{}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		target, err := safefile.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("listing the bundles of the cache: %w", err)
		}
		names[target] = append(names[target], e.Name())
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		is := Entry{Path: filepath.Join(dir, e.Name()), Names: names[e.Name()]}
		if err := is.inspect(ctx, cache); errors.Is(err, fs.ErrNotExist) {
			continue // removed in the meantime
		} else if err != nil {
			return nil, err
		}
		out = append(out, is)
	}
	return out, nil
}

// inspect opens the bundle, and finds out if it is in use.
func (e *Entry) inspect(ctx context.Context, cache string) error {
	info, err := safefile.Stat(e.Path)
	if err != nil {
		return err
	}
	e.Used = info.ModTime()
	e.Bundle, e.Problem = bundle.Open(ctx, e.Path, cache, bundle.Registry{})
	lock, err := lockDirectory(e.Path, unix.LOCK_EX)
	if errors.Is(err, errInUse) {
		e.InUse = true
		return nil
	}
	if err != nil {
		return err
	}
	return lock.Close()
}

// removedPrefix begins the name of a bundle whose removal has begun.
const removedPrefix = ".removed-"

// leftoverAge is the age after which a directory that an interrupted process has left is removed. An import or a download
// takes less time.
const leftoverAge = 24 * time.Hour

// removeLeftovers removes the directories that interrupted processes have left: incomplete bundles, and bundles whose
// removal was interrupted.
func removeLeftovers(cache string, now time.Time) (err error) {
	for _, below := range directories {
		dir := filepath.Join(cache, below)
		entries, listed := safefile.ReadDir(dir)
		if listed != nil && !errors.Is(listed, fs.ErrNotExist) {
			err = errors.Join(err, listed)
		}
		for _, e := range entries {
			info, statted := e.Info()
			if statted != nil || !e.IsDir() || !strings.HasPrefix(e.Name(), ".") {
				continue
			}
			if strings.HasPrefix(e.Name(), removedPrefix) || now.Sub(info.ModTime()) > leftoverAge {
				err = errors.Join(err, safefile.RemoveAll(filepath.Join(dir, e.Name())))
			}
		}
	}
	return err
}

// errInUse reports a lock that another process, or another part of this one, holds.
var errInUse = errors.New("the bundle is in use")

// lockDirectory locks the directory of a bundle until the file is closed. It does not wait.
func lockDirectory(path string, how int) (*os.File, error) {
	root, err := safefile.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errInUse
	}
	if err == nil {
		err = checkSame(f, path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkSame returns an error if a directory was removed or replaced.
func checkSame(f *os.File, path string) error {
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	named, err := safefile.Stat(path)
	if err == nil && !os.SameFile(opened, named) {
		err = &fs.PathError{Op: "lock", Path: path, Err: fs.ErrNotExist}
	}
	return err
}

// lockPoll is the time between two attempts to use a bundle that is being listed or removed.
const lockPoll = 20 * time.Millisecond

// Use keeps a bundle of a cache until release is called, and saves when it was used. It does nothing for a bundle
// elsewhere. If the bundle was removed in the meantime, the error is fs.ErrNotExist.
func Use(ctx context.Context, b *bundle.Bundle, cache string, now time.Time) (release func() error, err error) {
	below, err := filepath.Rel(cache, b.Path())
	if err != nil || !slices.Contains(directories, filepath.Dir(below)) {
		return func() error { return nil }, nil
	}
	lock, err := waitForLock(ctx, b.Path())
	if err != nil {
		return nil, fmt.Errorf("using bundle %s: %w", b.Path(), err)
	}
	// Another user can own the cache, for example root. Then the time of the arrival counts.
	if err := setUsed(b.Path(), now); err != nil && !errors.Is(err, fs.ErrPermission) {
		return nil, errors.Join(fmt.Errorf("using bundle %s: %w", b.Path(), err), lock.Close())
	}
	return lock.Close, nil
}

// waitForLock locks the directory of a bundle together with others that use it.
func waitForLock(ctx context.Context, path string) (*os.File, error) {
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		lock, err := lockDirectory(path, unix.LOCK_SH)
		if !errors.Is(err, errInUse) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func setUsed(path string, now time.Time) error {
	root, err := safefile.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	return root.Chtimes(".", now, now)
}

// Remove removes the bundle with a name: a version ("v1.37.1"), a version with architectures, a digest or its directory.
// A bundle in use is refused.
func Remove(ctx context.Context, cache, name string) (Entry, error) {
	all, err := List(ctx, cache)
	if err != nil {
		return Entry{}, err
	}
	found := slices.DeleteFunc(all, func(e Entry) bool { return !e.hasName(name) })
	switch len(found) {
	case 0:
		return Entry{}, diag.Refuse(bundle.IDNotFound, fmt.Sprintf("the cache has no bundle %s", name), "list the bundles of the cache")
	case 1:
		return found[0], found[0].remove()
	}
	digests := make([]string, 0, len(found))
	for _, e := range found {
		digests = append(digests, filepath.Base(e.Path))
	}
	return Entry{}, diag.Refuse(idAmbiguous, fmt.Sprintf("%s is the name of %d bundles", name, len(found)),
		"give one of these: "+strings.Join(digests, ", "))
}

func (e *Entry) hasName(name string) bool {
	base := filepath.Base(e.Path)
	if name == e.Path || name == base || strings.ReplaceAll(name, ":", "-") == base {
		return true
	}
	if e.Bundle != nil && (name == e.Bundle.Digest() || name == e.Bundle.Manifest().Kubernetes) {
		return true
	}
	return slices.Contains(e.Names, name)
}

// remove removes a bundle and its names, unless it is in use.
func (e *Entry) remove() error {
	lock, err := lockDirectory(e.Path, unix.LOCK_EX)
	if errors.Is(err, errInUse) {
		return diag.Refuse(idInUse, fmt.Sprintf("an operation uses bundle %s", e.label()), "wait until the operation has ended")
	}
	if err != nil {
		return fmt.Errorf("removing bundle %s: %w", e.label(), err)
	}
	defer lock.Close()
	dir, base := filepath.Dir(e.Path), filepath.Base(e.Path)
	removed := filepath.Join(dir, removedPrefix+base)
	err = safefile.RemoveAll(removed) // of an interrupted removal
	if err == nil {
		err = safefile.Rename(e.Path, removed) // it needs no space, and other processes see the whole bundle or nothing
	}
	if err != nil {
		return fmt.Errorf("removing bundle %s: %w", e.label(), err)
	}
	for _, name := range e.Names {
		if target, _ := safefile.Readlink(filepath.Join(dir, name)); target == base { // and not a newer bundle
			err = errors.Join(err, safefile.Remove(filepath.Join(dir, name)))
		}
	}
	if err := errors.Join(err, safefile.RemoveAll(removed)); err != nil {
		return fmt.Errorf("removing bundle %s: %w", e.label(), err)
	}
	return nil
}

// label returns the name for people.
func (e *Entry) label() string {
	if len(e.Names) > 0 {
		return e.Names[0]
	}
	return filepath.Base(e.Path)
}

// Shrink removes the bundles that were not used for the longest time, until the others have at most limit bytes. A bundle
// in use is kept. The leftovers of interrupted commands are removed first.
func Shrink(ctx context.Context, cache string, limit int64, now time.Time) (removed []Entry, err error) {
	if err := removeLeftovers(cache, now); err != nil {
		return nil, fmt.Errorf("removing what interrupted commands have left: %w", err)
	}
	all, err := List(ctx, cache)
	if err != nil {
		return nil, err
	}
	var total int64
	for i := range all {
		total += all[i].Size()
	}
	for i := range slices.Backward(all) {
		e := &all[i]
		if total <= limit {
			break
		}
		err := e.remove()
		if refused := (diag.List{}); errors.As(err, &refused) {
			continue
		}
		if err != nil {
			return removed, err
		}
		total -= e.Size()
		removed = append(removed, *e)
	}
	return removed, nil
}
