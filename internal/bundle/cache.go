package bundle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/bundle/layout"
	"slipway.dev/slipway/internal/safefile"
)

// createInCache creates a bundle in the cache with fill, which writes a layout into an empty
// directory. An incomplete bundle is not kept, nor one that none of keys has signed, if
// there are any.
func createInCache(ctx context.Context, cache string, keys []Key, fill func(d layout.Dir) error) (*Bundle, error) {
	dir := filepath.Join(cache, "bundles")
	if err := safefile.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	tmp, err := safefile.MkdirTemp(dir, ".import-*", 0o755)
	if err != nil {
		return nil, err
	}
	defer func() { _ = safefile.RemoveAll(tmp) }() // it has been renamed by then
	d, err := layout.Create(tmp)
	if err != nil {
		return nil, err
	}
	if err := fill(d); err != nil {
		return nil, err
	}
	if err := completeDelta(d, cache); err != nil {
		return nil, err
	}
	made, err := openDir(tmp)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(made.CheckSigned(keys), made.Verify(ctx)); err != nil {
		return nil, err
	}
	return keepInCache(ctx, cache, made, keys)
}

// keepInCache moves a finished bundle to its place in the cache, named by its digest, and makes
// the name of its version point to it. Of signatures by keys, only valid ones are kept.
func keepInCache(ctx context.Context, cache string, made *Bundle, keys []Key) (*Bundle, error) {
	dir := filepath.Join(cache, "bundles")
	version := linkName(made.manifest.Kubernetes, made.manifest.Arches)
	if version != filepath.Base(version) { // it would leave the cache
		return nil, newProblem(IDInvalid, "use a bundle that `slipway bundle build` created", "%.80q is not a valid bundle name", version)
	}
	name := strings.ReplaceAll(made.Digest(), ":", "-")
	path := filepath.Join(dir, name)
	kept, err := placeBundle(ctx, made, path, keys)
	if err != nil {
		return nil, fmt.Errorf("storing the bundle in the cache: %w", err)
	}
	link := filepath.Join(dir, version)
	fresh := link + ".new"
	if err := safefile.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := safefile.Symlink(name, fresh); err != nil {
		return nil, err
	}
	return kept, safefile.RenameSynced(fresh, link)
}

// placeBundle moves a finished bundle to path, unless the same bundle is already there and
// complete, because other processes may be reading it. Missing signatures are added to
// that one.
func placeBundle(ctx context.Context, made *Bundle, path string, keys []Key) (*Bundle, error) {
	if have, err := openDir(path); err == nil {
		if err := have.Verify(ctx); err == nil || ctx.Err() != nil {
			return have, errors.Join(ctx.Err(), have.addAnnotations(made.root.Annotations, keys))
		}
	}
	if err := safefile.RemoveAll(path); err != nil {
		return nil, err
	}
	if err := safefile.RenameSynced(made.Path(), path); err != nil {
		return nil, err
	}
	return openDir(path)
}

// addAnnotations adds annotations to the entry of the bundle in index.json, like mergeAnnotations: they
// are not part of its digest.
func (b *Bundle) addAnnotations(notes map[string]string, keys []Key) error {
	root := b.root
	root.Annotations = mergeAnnotations(root.Digest, b.root.Annotations, notes, keys)
	if maps.Equal(root.Annotations, b.root.Annotations) {
		return nil
	}
	b.root = root
	return b.dir.SetRoot(root)
}

func linkName(version string, arches []string) string {
	return strings.Join(append([]string{version}, arches...), "_")
}

// FindCached finds a bundle of a version ("v1.37.1") with all given architectures in the
// cache; if there are keys, one that they have signed.
func FindCached(cache, version string, arches []string, keys ...Key) (path string, ok bool) {
	dir := filepath.Join(cache, "bundles")
	entries, err := safefile.ReadDir(dir)
	if err != nil {
		return "", false
	}
	for _, e := range entries {
		have := strings.Split(e.Name(), "_")
		if have[0] != version || slices.ContainsFunc(arches, func(a string) bool { return !slices.Contains(have[1:], a) }) {
			continue
		}
		target, err := safefile.ResolveLinks(filepath.Join(dir, e.Name()))
		if err != nil || !layout.IsLayout(target) {
			continue
		}
		if len(keys) == 0 {
			return target, true
		}
		if b, err := openDir(target); err == nil && b.CheckSigned(keys) == nil {
			return target, true
		}
	}
	return "", false
}

// borrowBlobs takes blobs that a layout lacks from bundles in the cache, if they have intact
// copies.
func borrowBlobs(d layout.Dir, cache string, digests ...string) error {
	var from []string
	for _, below := range []string{"bundles", "unpacked"} {
		entries, err := safefile.ReadDir(filepath.Join(cache, below))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
				from = append(from, filepath.Join(cache, below, e.Name()))
			}
		}
	}
	for _, digest := range digests {
		if _, err := d.BlobSize(digest); err == nil {
			continue
		}
		for _, path := range from {
			have := layout.Dir(path)
			if _, err := have.BlobSize(digest); err != nil || have.VerifyBlob(digest) != nil {
				continue
			}
			if err := have.LendBlob(digest, d); err != nil {
				return err
			}
			break
		}
	}
	return nil
}
