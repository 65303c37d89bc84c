package archive

import (
	"context"
	"crypto/rand"
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

// A Directory keeps the files of an archive. Only its owner has access.
type Directory struct{ root *os.Root }

var _ Files = (*Directory)(nil)

// OpenDirectory opens a directory for an archive, and creates it if only its parent exists: a missing
// parent can be a disk that is not mounted.
func OpenDirectory(path string) (*Directory, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, UnavailableError(err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, UnavailableError(err)
	}
	info, err := root.Stat(".")
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = diag.Refuse(idUnavailable, fmt.Sprintf("other users have access to the archive of operations: %s has mode %#o", path,
			info.Mode().Perm()), "remove their access: chmod 700 "+path)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Directory{root}, nil
}

// Close closes the directory.
func (d *Directory) Close() error { return d.root.Close() }

// List returns the regular files whose names have a prefix.
func (d *Directory) List(_ context.Context, prefix string) (out []copies.File, err error) {
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

// Fetch writes the content of a regular file.
func (d *Directory) Fetch(_ context.Context, name string, to io.Writer) error {
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

// Put writes a file under a name that no other writer uses, and renames it.
func (d *Directory) Put(ctx context.Context, name string, write func(io.Writer) error) (err error) {
	part := "." + name + "." + rand.Text()[:8] + ".part"
	f, err := d.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Sync(), f.Close(), ctx.Err())
	if err == nil {
		err = d.root.Rename(part, name)
	}
	if err != nil {
		return errors.Join(err, d.Remove(ctx, part))
	}
	return fsync.SyncDirIn(d.root, ".")
}

// Remove removes a file.
func (d *Directory) Remove(_ context.Context, name string) error {
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fsync.SyncDirIn(d.root, ".")
}
