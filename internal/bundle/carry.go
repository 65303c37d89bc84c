package bundle

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/bundle/layout"
	"slipway.dev/slipway/internal/regular"
	"slipway.dev/slipway/internal/safefile"
)

// CheckOut says whether Export can write to out: a directory if it ends in a
// slash, else a file. One that is there is written over if it is a bundle.
func CheckOut(out string) error {
	if out == "" {
		return problem(IDOut, "name a file, or a directory with a / at the end", "the file name is empty")
	}
	info, err := os.Stat(out)
	switch {
	case err != nil, strings.HasSuffix(out, "/"): // it is made, or added to
		return nil
	case !info.Mode().IsRegular():
		return problem(IDOut, "name a file, or a directory with a / at the end", "%s exists and is not a file", out)
	case info.Size() > 0 && !packed(out):
		return problem(IDOut, "name another file, or delete this one first", "%s exists and is not a bundle, so it will not be overwritten", out)
	}
	return nil
}

// UnknownRuntime refuses the name of a container runtime that no bundle is for.
func UnknownRuntime(name string) error {
	return problem(IDUnknownName, "use containerd or docker", "a bundle cannot contain the container runtime %q", name)
}

// Unnamed refuses a bundle without a name, such as a script's that is not set:
// that is not to mean the one that happens to be there.
func Unnamed() error {
	return problem(IDNotFound, "name a file, a directory or a version", "the bundle name is empty")
}

// packed says that a file begins as a compressed bundle does (RFC 8878).
func packed(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	magic := make([]byte, 4)
	_, err = io.ReadFull(f, magic)
	return err == nil && string(magic) == "\x28\xb5\x2f\xfd"
}

// Export puts a copy of a bundle to out: one .tar.zst file, which is there
// whole or not at all, or a directory if it ends in a slash. Every byte is
// compared with its digest first.
func Export(ctx context.Context, b *Bundle, out string) error {
	if err := CheckOut(out); err != nil {
		return err
	}
	if err := b.Verify(ctx); err != nil {
		return err
	}
	if strings.HasSuffix(out, "/") {
		return explain(out, copyLayout(ctx, b, strings.TrimRight(out, "/")))
	}
	return explain(out, writeWhole(out, func(w io.Writer) error { return b.dir.Pack(ctx, w) }))
}

// writeWhole makes a file with write: under another name first, so that it is
// whole or not there at all.
func writeWhole(path string, write func(io.Writer) error) error {
	if err := safefile.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp, err := safefile.CreateTemp(filepath.Dir(path), ".bundle-*")
	if err != nil {
		return err
	}
	defer func() { _ = safefile.Remove(tmp.Name()) }() // it has another name by then
	defer tmp.Close()
	if err := write(tmp); err != nil {
		return err
	}
	if err := tmp.Chmod(0o644); err != nil {
		return err
	}
	return safefile.Commit(tmp, path)
}

// copyLayout copies, without links to the cache, so that the copy is the
// user's own.
func copyLayout(ctx context.Context, have *Bundle, dir string) error {
	d, err := layout.Create(dir)
	if err != nil {
		return err
	}
	for digest := range have.sizes() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := copyBlob(d, have, digest); err != nil {
			return err
		}
	}
	return d.SetRoot(have.root)
}

func copyBlob(d layout.Dir, have *Bundle, digest string) error {
	r, err := have.dir.Open(digest, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	return d.Add(digest, r)
}

// Import brings a bundle into the cache, where clusters find it by its
// version: a .tar.zst file, or a directory. Every byte is compared with its
// digest before the bundle is anywhere to be found; if keys are given, one of
// them must have signed it. A file with the difference from another bundle
// takes the rest from the cache. The error is a diag.List where the user can
// mend it.
func Import(ctx context.Context, path, cache string, keys ...Key) (*Bundle, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, explain(path, err)
	}
	b, err := inCache(ctx, cache, keys, func(d layout.Dir) error {
		if fi.IsDir() {
			have, err := openGiven(path, cache)
			if err != nil {
				return err
			}
			return copyLayout(ctx, have, string(d))
		}
		f, err := regular.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = layout.Unpack(ctx, f, string(d))
		return err
	})
	return b, explain(path, err)
}
