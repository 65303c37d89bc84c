package copies

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/fsync"
)

// A directory is a target on the host itself.
type directory struct{ path string }

// OpenDirectory returns the target for an existing directory. It does not create one, because
// the directory may be missing only because a disk is not mounted.
func OpenDirectory(path string) (Target, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("not a directory")}
	}
	return directory{path}, err
}

func (d directory) Close() error { return nil }

func (d directory) List(context.Context, string) (out []File, err error) {
	entries, err := os.ReadDir(d.path)
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed in the meantime
		case err != nil:
			return nil, err
		case info.Mode().IsRegular():
			out = append(out, File{Name: e.Name(), Bytes: info.Size(), Modified: info.ModTime().UTC()})
		}
	}
	return out, err
}

// Fetch reads a regular file. It neither blocks on a pipe nor follows a link that another
// user has put in its place.
func (d directory) Fetch(_ context.Context, name string, to io.Writer) error {
	path := filepath.Join(d.path, filepath.Base(name))
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(to, f)
	return err
}

// Put writes to a new file and reads back that open file: others may be able to write to
// the directory and could replace the name.
func (d directory) Put(ctx context.Context, name string, write func(io.Writer) error) (err error) {
	part := filepath.Join(d.path, newPartName(name))
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Remove(ctx, filepath.Base(part)))
		}
	}()
	wrote := newCounter(f)
	err = errors.Join(write(wrote), f.Sync())
	if err == nil {
		err = wrote.readBack(f)
	}
	if err := errors.Join(err, f.Close(), ctx.Err()); err != nil {
		return err
	}
	return fsync.Rename(part, filepath.Join(d.path, name))
}

func (d directory) Remove(_ context.Context, name string) error {
	if err := os.Remove(filepath.Join(d.path, name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
