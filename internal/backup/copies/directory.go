package copies

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A directory is a target on the host itself.
type directory struct{ path string }

// Directory is a directory that is there: it is not made, for a disk that is not
// mounted leaves an empty place.
func Directory(path string) (Target, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("this is no directory")}
	}
	return directory{path}, err
}

func (d directory) Close() error { return nil }

func (d directory) List(context.Context) (out []File, err error) {
	entries, err := os.ReadDir(d.path)
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			return nil, err
		case info.Mode().IsRegular():
			out = append(out, File{Name: e.Name(), Bytes: info.Size()})
		}
	}
	return out, err
}

func (d directory) Fetch(_ context.Context, name string, to io.Writer) error {
	f, err := os.Open(filepath.Join(d.path, filepath.Base(name)))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(to, f)
	return err
}

func (d directory) Put(ctx context.Context, name string, write func(io.Writer) error) (err error) {
	part := filepath.Join(d.path, partOf(name))
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Remove(ctx, partOf(name)))
		}
	}()
	wrote := counting(f)
	if err := errors.Join(write(wrote), f.Sync(), f.Close()); err != nil {
		return err
	}
	back := counting(io.Discard)
	if err := errors.Join(d.Fetch(ctx, partOf(name), back), wrote.compare(back), ctx.Err()); err != nil {
		return err
	}
	if err := os.Rename(part, filepath.Join(d.path, name)); err != nil {
		return err
	}
	dir, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (d directory) Remove(_ context.Context, name string) error {
	if err := os.Remove(filepath.Join(d.path, name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
