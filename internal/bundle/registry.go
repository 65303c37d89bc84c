package bundle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"slipway.dev/slipway/internal/bundle/layout"
	"slipway.dev/slipway/internal/bundle/mirror"
)

// IsReference reports whether a path that does not exist names a bundle in a registry.
func IsReference(path string) bool {
	_, ok := parseReference(path)
	return ok
}

// parseUserReference parses a reference from the user. It also returns the access to its registry.
func parseUserReference(text string, at Registry) (name.Reference, Registry, error) {
	text = strings.TrimPrefix(text, "oci://")
	ref, err := name.ParseReference(text, name.StrictValidation)
	if err == nil {
		at = at.forHost(ref.Context().RegistryStr())
		ref, err = name.ParseReference(text, append(at.nameOptions(), name.StrictValidation)...)
	}
	if err != nil {
		return nil, at, newProblem(IDReference, "give the registry, the repository and a tag: registry.example.com/slipway/bundle:v1.37.1",
			"%q is not a reference to a bundle in a registry: %v", text, err)
	}
	return ref, at, nil
}

// Push pushes a bundle with its signatures to a registry, and then checks each part in
// the registry. Content that the registry has is not sent again. It returns the reference
// by digest, which always means this bundle. The error is a diag.List.
func Push(ctx context.Context, b *Bundle, to string, at Registry) (string, error) {
	ref, at, err := parseUserReference(to, at)
	if err != nil {
		return "", err
	}
	if err := b.Verify(ctx); err != nil {
		return "", err
	}
	failed := func(err error) error {
		return newProblem(IDPush, registryHint, "pushing to %s: %v", ref, err)
	}
	opts, err := at.requestOptions(ctx)
	if err != nil {
		return "", err
	}
	ix, err := b.dir.ReadIndex(b.root)
	if err != nil {
		return "", failed(err)
	}
	if err := remote.WriteIndex(ref, ix, opts...); err != nil {
		return "", failed(err)
	}
	if err := b.comparePushed(ref, opts); err != nil {
		return "", failed(err)
	}
	if err := b.pushSignatures(ref, opts); err != nil {
		return "", failed(err)
	}
	return ref.Context().Digest(b.Digest()).String(), nil
}

// comparePushed checks all pushed content in a registry: the index by its reference, the
// manifests, and every blob by its size.
func (b *Bundle) comparePushed(ref name.Reference, opts []remote.Option) error {
	got, err := remote.Index(ref, opts...)
	if err != nil {
		return err
	}
	digest, err := got.Digest()
	if err != nil {
		return err
	}
	if digest != b.root.Digest {
		return fmt.Errorf("the registry now has %s at this reference, not %s: someone else pushed to it at the same time", digest, b.root.Digest)
	}
	manifests := map[string]bool{b.Digest(): true}
	for _, m := range b.index.Manifests {
		manifests[m.Digest.String()] = true
		if _, err := remote.Get(ref.Context().Digest(m.Digest.String()), opts...); err != nil {
			return err
		}
	}
	sizes := b.blobSizes()
	for _, blob := range slices.Sorted(maps.Keys(sizes)) {
		if manifests[blob] {
			continue
		}
		l, err := remote.Layer(ref.Context().Digest(blob), opts...)
		if err != nil {
			return err
		}
		if n, err := l.Size(); err != nil || n != sizes[blob] {
			return errors.Join(err, fmt.Errorf("the registry has %d bytes of blob %s, expected %d", n, blob, sizes[blob]))
		}
	}
	return nil
}

// Pull adds a bundle from a registry to the cache, where clusters find it by its version.
// Content in the cache, in any bundle, is not fetched. If keys are given, one of them
// must have signed it. The error is a diag.List if the user can fix it.
func Pull(ctx context.Context, from, cache string, at Registry, keys ...Key) (*Bundle, error) {
	ref, at, err := parseUserReference(from, at)
	if err != nil {
		return nil, err
	}
	f, err := findInRegistry(ctx, ref, at, keys)
	if err != nil {
		return nil, err
	}
	// Before anything large is fetched.
	if err := checkSigned(keys, f.rootDescriptor(), nil, ref.String()); err != nil {
		return nil, err
	}
	b, err := createInCache(ctx, cache, keys, func(d layout.Dir) error { return f.writeLayout(d, cache) })
	return b, f.explainError(err)
}

// foundBundle is a bundle in a registry.
type foundBundle struct {
	ref        name.Reference
	index      v1.ImageIndex
	digest     v1.Hash
	raw        []byte
	signatures map[string]string
}

func findInRegistry(ctx context.Context, ref name.Reference, at Registry, keys []Key) (*foundBundle, error) {
	f := &foundBundle{ref: ref}
	opts, err := at.requestOptions(ctx)
	if err != nil {
		return nil, err
	}
	if f.index, err = remote.Index(ref, opts...); err != nil {
		return nil, f.explainError(err)
	}
	if f.digest, err = f.index.Digest(); err != nil {
		return nil, f.explainError(err)
	}
	if f.raw, err = f.index.RawManifest(); err != nil {
		return nil, f.explainError(err)
	}
	if f.signatures, err = readSignatures(ref, f.digest, opts, keys); err != nil {
		return nil, f.explainError(err)
	}
	return f, nil
}

func (f *foundBundle) rootDescriptor() v1.Descriptor {
	return v1.Descriptor{
		MediaType: "application/vnd.oci.image.index.v1+json", Digest: f.digest,
		Size: int64(len(f.raw)), Annotations: f.signatures,
	}
}

func (f *foundBundle) explainError(err error) error {
	if e := explainError(f.ref.String(), err); err == nil || isDiagnostic(e) {
		return e
	}
	return newProblem(IDPull, registryHint, "pulling bundle %s: %v", f.ref, err)
}

const registryHint = "check the reference, the network, the registry's certificate (--ca, --insecure) and its " +
	"credentials (from `docker login`, --credentials, or spec.registry.auths of a cluster)"

// writeLayout writes the bundle to a layout, with blobs from the cache if they exist.
func (f *foundBundle) writeLayout(d layout.Dir, cache string) error {
	im, err := f.index.IndexManifest()
	if err != nil {
		return err
	}
	for _, desc := range im.Manifests {
		img, err := f.index.Image(desc.Digest)
		if err != nil {
			return err
		}
		m, err := img.Manifest()
		if err != nil {
			return err
		}
		var layers []string
		for _, l := range m.Layers {
			layers = append(layers, l.Digest.String())
		}
		if err := borrowBlobs(d, cache, layers...); err != nil {
			return err
		}
		if _, _, err := d.AddImage(img); err != nil {
			return fmt.Errorf("manifest %s: %w", desc.Digest, err)
		}
	}
	if _, err := d.AddBytes(f.raw); err != nil {
		return err
	}
	return d.SetRoot(f.rootDescriptor())
}

// openRegistry opens a bundle in a registry, or else in one of its mirrors.
func openRegistry(ctx context.Context, ref name.Reference, cache string, at Registry, keys []Key) (*Bundle, error) {
	b, err := openReference(ctx, ref.String(), cache, at, keys)
	if err == nil || ctx.Err() != nil {
		return b, err
	}
	return mirror.Open(err, mirror.ListReferences(ref, at.Mirrors, at.Plain), func(text string) (*Bundle, error) {
		b, err := openReference(ctx, text, cache, at, keys)
		if err == nil {
			err = b.CheckSigned(keys) // another mirror can have the signature
		}
		return b, err
	})
}

func openReference(ctx context.Context, text, cache string, at Registry, keys []Key) (*Bundle, error) {
	ref, at, err := parseUserReference(text, at)
	if err != nil {
		return nil, err
	}
	f, err := findInRegistry(ctx, ref, at, keys)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "unpacked", f.digest.Hex)
	b, err := openOrCreate(ctx, dir, func(tmp string) error {
		d, err := layout.Create(tmp)
		if err != nil {
			return err
		}
		return f.writeLayout(d, cache)
	})
	if err != nil {
		return nil, f.explainError(err)
	}
	return b, b.addAnnotations(f.signatures, keys) // it may have been signed since then
}
