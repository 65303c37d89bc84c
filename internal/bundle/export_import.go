package bundle

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/bundle/layout"
	"slipway.dev/slipway/internal/safefile"
)

// CheckOut returns an error if Export cannot write to out: a directory if it ends in a
// slash, else a file. An existing file is overwritten only if it is a bundle.
func CheckOut(out string) error {
	if out == "" {
		return newProblem(IDOut, "give a file, or a directory with a / at the end", "the file name is empty")
	}
	info, err := os.Stat(out)
	switch {
	case err != nil, strings.HasSuffix(out, "/"): // it is created, or extended
		return nil
	case !info.Mode().IsRegular():
		return newProblem(IDOut, "give a file, or a directory with a / at the end", "%s exists and is not a file", out)
	case info.Size() > 0 && !isPacked(out):
		return newProblem(IDOut, "give another file, or delete this file first",
			"%s exists and is not a bundle, so it will not be overwritten", out)
	}
	return nil
}

// UnknownRuntime returns an error for a container runtime that bundles do not support.
func UnknownRuntime(name string) error {
	return newProblem(IDUnknownName, "use containerd or docker", "a bundle cannot contain the container runtime %q", name)
}

// EmptyNameError returns an error for an empty bundle name, such as an unset variable in a
// script: it must not mean a bundle that happens to exist.
func EmptyNameError() error {
	return newProblem(IDNotFound, "give a file, a directory or a version", "the bundle name is empty")
}

// isPacked reports whether a file begins like a compressed bundle (RFC 8878).
func isPacked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	magic := make([]byte, 4)
	_, err = io.ReadFull(f, magic)
	return err == nil && string(magic) == "\x28\xb5\x2f\xfd"
}

// Export writes a copy of a bundle to out: one .tar.zst file, which is complete or does
// not exist, or a directory if out ends in a slash. Every byte is compared with its
// digest first.
func Export(ctx context.Context, b *Bundle, out string) error {
	if err := CheckOut(out); err != nil {
		return err
	}
	if err := b.Verify(ctx); err != nil {
		return err
	}
	if strings.HasSuffix(out, "/") {
		return explainError(out, copyLayout(ctx, b, strings.TrimRight(out, "/")))
	}
	return explainError(out, writeAtomically(out, func(w io.Writer) error { return b.dir.Pack(ctx, w) }))
}

// writeAtomically creates a file with write, under a temporary name first, so that it is
// complete or does not exist.
func writeAtomically(path string, write func(io.Writer) error) error {
	if err := safefile.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp, err := safefile.CreateTemp(filepath.Dir(path), ".bundle-*")
	if err != nil {
		return err
	}
	defer func() { _ = safefile.Remove(tmp.Name()) }() // it has been renamed by then
	defer tmp.Close()
	if err := write(tmp); err != nil {
		return err
	}
	if err := tmp.Chmod(0o644); err != nil {
		return err
	}
	return safefile.Commit(tmp, path)
}

// copyLayout copies without links to the cache, so that the copy belongs to the user.
func copyLayout(ctx context.Context, have *Bundle, dir string) error {
	d, err := layout.Create(dir)
	if err != nil {
		return err
	}
	for digest := range have.blobSizes() {
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
	r, err := have.dir.OpenBlob(digest, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	return d.AddBlob(digest, r)
}

// Import adds a bundle to the cache, where clusters find it by its version: a .tar.zst
// file, or a directory. Every byte is compared with its digest before the bundle can be
// found. If keys are given, one of them must have signed it. A delta bundle takes the
// rest from the cache. The error is a diag.List if the user can fix it.
func Import(ctx context.Context, path, cache string, keys ...Key) (*Bundle, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, explainError(path, err)
	}
	b, err := createInCache(ctx, cache, keys, func(d layout.Dir) error {
		if fi.IsDir() {
			have, err := openUserDir(path, cache)
			if err != nil {
				return err
			}
			return copyLayout(ctx, have, string(d))
		}
		f, err := bounded.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = layout.Unpack(ctx, f, string(d))
		return err
	})
	return b, explainError(path, err)
}
