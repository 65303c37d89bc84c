package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/fsync"
)

// maxCalls limits the calls of a Directory at the same time, including calls that a file system blocks.
const maxCalls = 16

// A Directory keeps the files of an archive. Only its owner has access.
type Directory struct {
	root  *os.Root
	calls chan struct{} // has an element for each call that runs
}

var _ Files = (*Directory)(nil)

// OpenDirectory opens a directory for an archive, and creates it if only its parent exists: a missing
// parent can be a disk that is not mounted.
func OpenDirectory(ctx context.Context, path string) (*Directory, error) {
	d := &Directory{calls: make(chan struct{}, maxCalls)}
	root, err := callValue(ctx, d, func() (*os.Root, error) { return openRoot(path) })
	if err != nil {
		var refused diag.List
		if errors.As(err, &refused) {
			return nil, err
		}
		return nil, unavailableError(ctx, err)
	}
	d.root = root
	return d, nil
}

func openRoot(path string) (*os.Root, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = diag.Refuse(idUnavailable, fmt.Sprintf("other users have access to the archive of operations: %s has mode %#o", path,
			info.Mode().Perm()), "remove their access: chmod 700 "+path)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// callValue calls f, and returns its result or the cause if ctx ends before. A file system of which the
// server or the disk does not respond can block f: its goroutine then remains, and counts as a call.
func callValue[T any](ctx context.Context, d *Directory, f func() (T, error)) (none T, err error) {
	select {
	case d.calls <- struct{}{}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	type result struct {
		value T
		err   error
	}
	ended := make(chan result, 1)
	go func() { // ends with f
		defer func() { <-d.calls }()
		v, err := f()
		ended <- result{v, err}
	}()
	select {
	case r := <-ended:
		return r.value, r.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// call is callValue for a function without a result.
func (d *Directory) call(ctx context.Context, f func() error) error {
	_, err := callValue(ctx, d, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// Close closes the directory.
func (d *Directory) Close() error { return d.root.Close() }

// List returns the regular files whose names have a prefix.
func (d *Directory) List(ctx context.Context, prefix string) ([]copies.File, error) {
	return callValue(ctx, d, func() ([]copies.File, error) { return d.list(prefix) })
}

func (d *Directory) list(prefix string) (out []copies.File, err error) {
	dir, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		return nil, err
	}
	for _, name := range names {
		if !strings.HasPrefix(strings.TrimPrefix(name, "."), prefix) {
			continue
		}
		info, err := d.root.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed in the meantime
		case err != nil:
			return nil, err
		case info.Mode().IsRegular():
			out = append(out, copies.File{Name: name, Bytes: info.Size(), Modified: info.ModTime().UTC()})
		}
	}
	return out, nil
}

// Fetch writes the content of a regular file. If ctx ends, a write to to can still follow.
func (d *Directory) Fetch(ctx context.Context, name string, to io.Writer) error {
	return d.call(ctx, func() error { return d.fetch(name, to) })
}

func (d *Directory) fetch(name string, to io.Writer) error {
	f, err := d.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	if err == nil {
		_, err = io.Copy(to, f)
	}
	return err
}

// Put writes a file under a name that no other writer uses, and renames it. If ctx ends, write can
// still run, and the file can still appear.
func (d *Directory) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	return d.call(ctx, func() error { return d.put(ctx, name, write) })
}

func (d *Directory) put(ctx context.Context, name string, write func(io.Writer) error) (err error) {
	part := "." + name + "." + randomWord() + ".part"
	f, err := d.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Sync(), f.Close(), ctx.Err())
	if err == nil {
		err = d.root.Rename(part, name)
	}
	if err != nil {
		return errors.Join(err, d.remove(part))
	}
	return fsync.SyncDirIn(d.root, ".")
}

// Remove removes a file.
func (d *Directory) Remove(ctx context.Context, name string) error {
	return d.call(ctx, func() error { return d.remove(name) })
}

func (d *Directory) remove(name string) error {
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fsync.SyncDirIn(d.root, ".")
}
