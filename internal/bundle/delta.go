package bundle

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/bundle/layout"
)

// annotationBase is the annotation of a delta in index.json with the digest of its base
// bundle.
const annotationBase = "dev.slipway.base"

// A Difference is the content that one bundle has and another lacks.
type Difference struct {
	Blobs     int
	SizeBytes int64
}

// WriteDelta writes the content that next has and old lacks to the file out. Import creates
// next from it if the cache has old, or the same blobs from other bundles. Every byte of
// next is compared with its digest first.
func WriteDelta(ctx context.Context, old, next *Bundle, out string) (Difference, error) {
	if err := CheckOut(out); err != nil {
		return Difference{}, err
	}
	if strings.HasSuffix(out, "/") {
		return Difference{}, newProblem(IDOut, "name a file", "a delta bundle is a single file, but %s is a directory", out)
	}
	if err := next.Verify(ctx); err != nil {
		return Difference{}, err
	}
	without := map[string]bool{}
	for digest := range old.blobSizes() {
		without[digest] = true
	}
	for _, digest := range next.describingBlobs() {
		delete(without, digest)
	}
	var d Difference
	for digest, size := range next.blobSizes() {
		if !without[digest] {
			d.Blobs++
			d.SizeBytes += size
		}
	}
	root := next.root
	root.Annotations = map[string]string{annotationBase: old.Digest()}
	maps.Copy(root.Annotations, next.root.Annotations)
	return d, explainError(out, writeAtomically(out, func(w io.Writer) error { return next.dir.PackAs(ctx, w, root, without) }))
}

// describingBlobs returns the blobs that describe the bundle.
func (b *Bundle) describingBlobs() []string {
	return []string{b.root.Digest.String(), b.index.Manifests[0].Digest.String(), b.artifact.Config.Digest.String()}
}

// completeDelta turns an unpacked delta in d into a full bundle, with missing blobs from the
// cache. It does not change other layouts.
func completeDelta(d layout.Dir, cache string) error {
	b := &Bundle{dir: d}
	if err := b.loadManifest(); err != nil {
		return err
	}
	base, ok := b.root.Annotations[annotationBase]
	if !ok {
		return nil
	}
	sizes := b.blobSizes()
	if err := borrowBlobs(d, cache, slices.Sorted(maps.Keys(sizes))...); err != nil {
		return err
	}
	lacking := 0
	for digest := range sizes {
		if _, err := d.BlobSize(digest); errors.Is(err, fs.ErrNotExist) {
			lacking++
		}
	}
	if lacking > 0 {
		return newProblem(IDBase, "import its base bundle first, or use a full bundle",
			"this is a delta of another bundle, %s, but %d of its blobs are missing from the cache", base, lacking)
	}
	root := b.root
	root.Annotations = maps.Clone(root.Annotations)
	delete(root.Annotations, annotationBase)
	return d.SetRoot(root)
}
