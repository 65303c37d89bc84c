package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/bundle/layout"
	"slipway.dev/slipway/internal/safefile"
)

// Open opens a bundle: a directory, a .tar.zst file, or a reference in an OCI registry
// ("registry.example.com/slipway/bundle:v1.37.1", with or without "oci://"). A file or
// reference is unpacked once below the cache directory and verified; later, it is found
// there by its digest. A registry can have any number of signatures, so signatures by
// keys are kept first; CheckSigned returns an error for a bundle that none of them has
// signed. Errors that the user can fix are a diag.List.
func Open(ctx context.Context, path, cache string, at Registry, keys ...Key) (*Bundle, error) {
	fi, err := os.Stat(path)
	switch {
	case err == nil && fi.IsDir():
		return openUserDir(path, cache)
	case err == nil:
		return openArchive(ctx, path, cache)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, explainError(path, err)
	}
	if ref, ok := parseReference(path); ok {
		return openRegistry(ctx, ref, cache, at, keys)
	}
	return nil, explainError(path, fs.ErrNotExist)
}

// openUserDir opens the directory that a user has named. It follows links of the user,
// wherever they lead, except in the cache.
func openUserDir(path, cache string) (*Bundle, error) {
	if rel, err := filepath.Rel(cache, path); err == nil && filepath.IsLocal(rel) {
		return openDir(path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, explainError(path, err)
	}
	return openDir(real)
}

// parseReference parses a path that does not exist as a reference in a registry: its first
// element must be a host, with a dot or a port, or localhost.
func parseReference(path string) (name.Reference, bool) {
	text, scheme := strings.CutPrefix(path, "oci://")
	host, rest, _ := strings.Cut(text, "/")
	if !scheme && (rest == "" || strings.HasPrefix(host, ".") || host != "localhost" && !strings.ContainsAny(host, ".:")) {
		return nil, false
	}
	ref, err := name.ParseReference(text, name.StrictValidation)
	return ref, err == nil
}

func openArchive(ctx context.Context, path, cache string) (*Bundle, error) {
	f, err := bounded.Open(path)
	if err != nil {
		return nil, explainError(path, err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, explainError(path, err)
	}
	dir := filepath.Join(cache, "unpacked", hex.EncodeToString(h.Sum(nil)))
	b, err := openOrCreate(ctx, dir, func(tmp string) error {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		_, err := layout.Unpack(ctx, f, tmp)
		return err
	})
	return b, explainError(path, err)
}

// openOrCreate opens the bundle in dir, a place in the cache. If it is missing or damaged, fill
// creates it, under a temporary name first, so that dir is complete or does not exist. Of several processes and operations
// that need the bundle, one creates it, and the others wait.
func openOrCreate(ctx context.Context, dir string, fill func(tmp string) error) (*Bundle, error) {
	if b, err := openIntact(ctx, dir); b != nil || err != nil {
		return b, err
	}
	path := lockPath(dir)
	for _, d := range []string{filepath.Dir(dir), filepath.Dir(path)} {
		if err := safefile.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	lock, err := safefile.Lock(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if b, err := openIntact(ctx, dir); b != nil || err != nil { // another one has created it
		return b, err
	}
	if err := safefile.RemoveAll(dir); err != nil {
		return nil, err
	}
	tmp, err := safefile.MkdirTemp(filepath.Dir(dir), ".unpack-*", 0o755)
	if err != nil {
		return nil, err
	}
	defer func() { _ = safefile.RemoveAll(tmp) }() // it has been renamed by then
	if err := fill(tmp); err != nil {
		return nil, err
	}
	if err := safefile.RenameSynced(tmp, dir); err != nil {
		return nil, err
	}
	return openDir(dir)
}

// lockPath returns the path of the lock of a place in the cache. Locks remain, so they have a separate directory.
func lockPath(dir string) string {
	parent := filepath.Dir(dir)
	return filepath.Join(filepath.Dir(parent), "locks", filepath.Base(parent)+"-"+filepath.Base(dir)+".lock")
}

// openIntact opens the bundle in dir, nil if it is missing or damaged.
func openIntact(ctx context.Context, dir string) (*Bundle, error) {
	if _, err := safefile.Stat(dir); err != nil {
		return nil, nil //nolint:nilerr,nilnil // creating it returns the error
	}
	b, err := openVerified(ctx, dir)
	if isCorrupt(err) {
		return nil, nil //nolint:nilnil // it is created again
	}
	return b, err
}
