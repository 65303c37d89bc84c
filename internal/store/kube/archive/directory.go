package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/fsync"
)

// maxCalls limits the calls of a Directory at the same time, including calls that a file system blocks.
const maxCalls = 16

// A Directory keeps the files of an archive. Only its owner has access.
type Directory struct {
	path  string
	calls chan struct{}           // has an element for each call that runs
	root  atomic.Pointer[os.Root] // nil until a call has opened it
}

var _ Files = (*Directory)(nil)

// NewDirectory returns a directory for an archive. The first call that succeeds opens it, and creates it if only
// its parent exists: a missing parent can be a disk that is not mounted.
func NewDirectory(path string) *Directory {
	return &Directory{path: path, calls: make(chan struct{}, maxCalls)}
}

// OpenDirectory returns a directory that it has opened. See NewDirectory.
func OpenDirectory(ctx context.Context, path string) (*Directory, error) {
	d := NewDirectory(path)
	return d, d.Open(ctx)
}

// Open opens the directory. Other calls open it too.
func (d *Directory) Open(ctx context.Context) error {
	_, err := callValue(ctx, d, d.open)
	if err != nil {
		return unavailableError(ctx, err)
	}
	return nil
}

// open returns the open directory. The file system can block it.
func (d *Directory) open() (*os.Root, error) {
	if root := d.root.Load(); root != nil {
		return root, nil
	}
	root, err := openRoot(d.path)
	if err != nil {
		return nil, err
	}
	for !d.root.CompareAndSwap(nil, root) { // perhaps another call has opened it
		if other := d.root.Load(); other != nil {
			return other, root.Close()
		}
	}
	return root, nil
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
func (d *Directory) Close() error {
	if root := d.root.Swap(nil); root != nil {
		return root.Close()
	}
	return nil
}

// List returns the regular files whose names have a prefix.
func (d *Directory) List(ctx context.Context, prefix string) ([]copies.File, error) {
	return callValue(ctx, d, func() ([]copies.File, error) { return d.list(prefix) })
}

func (d *Directory) list(prefix string) (out []copies.File, err error) {
	root, err := d.open()
	if err != nil {
		return nil, err
	}
	dir, err := root.Open(".")
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
		info, err := root.Lstat(name)
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
	root, err := d.open()
	if err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
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
	root, err := d.open()
	if err != nil {
		return err
	}
	part := "." + name + "." + randomWord() + ".part"
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Sync(), f.Close(), ctx.Err())
	if err == nil {
		err = root.Rename(part, name)
	}
	if err != nil {
		return errors.Join(err, d.remove(part))
	}
	return fsync.SyncDirIn(root, ".")
}

// Remove removes a file.
func (d *Directory) Remove(ctx context.Context, name string) error {
	return d.call(ctx, func() error { return d.remove(name) })
}

func (d *Directory) remove(name string) error {
	root, err := d.open()
	if err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fsync.SyncDirIn(root, ".")
}
