package layout

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// onDisk is a layer that is a file already; it is linked, not copied.
type onDisk interface{ DiskPath() string }

// AddImage stores an image's manifest, config and layers, each verified. Layers
// that are there are not fetched again, unless they are damaged.
func (d Dir) AddImage(img v1.Image) (v1.Descriptor, *v1.Manifest, error) {
	raw, err := img.RawManifest()
	if err != nil {
		return v1.Descriptor{}, nil, err
	}
	m, err := img.Manifest()
	if err != nil {
		return v1.Descriptor{}, nil, err
	}
	for _, desc := range m.Layers {
		if err := d.addLayer(img, desc); err != nil {
			return v1.Descriptor{}, nil, fmt.Errorf("layer %s: %w", desc.Digest, err)
		}
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return v1.Descriptor{}, nil, err
	}
	if got, err := d.AddBytes(config); err != nil || got != m.Config.Digest.String() {
		return v1.Descriptor{}, nil, fmt.Errorf("config %s: %w", m.Config.Digest, joinCorrupt(err))
	}
	digest, err := d.AddBytes(raw)
	if err != nil {
		return v1.Descriptor{}, nil, err
	}
	h, err := v1.NewHash(digest)
	return v1.Descriptor{MediaType: m.MediaType, Digest: h, Size: int64(len(raw))}, m, err
}

func joinCorrupt(err error) error {
	if err == nil {
		return ErrCorrupt
	}
	return err
}

func (d Dir) addLayer(img v1.Image, desc v1.Descriptor) error {
	digest := desc.Digest.String()
	if has, err := d.HasBlob(digest); has || err != nil {
		return err
	}
	l, err := img.LayerByDigest(desc.Digest)
	if err != nil {
		return err
	}
	if own, ok := l.(onDisk); ok {
		return d.AddFile(digest, own.DiskPath())
	}
	r, err := l.Compressed()
	if err != nil {
		return err
	}
	defer r.Close()
	return d.AddBlob(digest, r)
}

// ReadImage reads the image whose manifest has the given digest. Blobs are not
// verified before they are read.
func (d Dir) ReadImage(manifest string) (v1.Image, error) {
	raw, err := d.ReadBlob(manifest, maxImageManifest)
	if err != nil {
		return nil, err
	}
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("parsing manifest %s: %w", manifest, err)
	}
	return partial.CompressedToImage(stored{dir: d, raw: raw, manifest: m})
}

// maxImageManifest bounds an image's manifest, in bytes.
const maxImageManifest = 4 << 20

// stored is an image of a layout.
type stored struct {
	dir      Dir
	raw      []byte
	manifest *v1.Manifest
}

func (s stored) RawManifest() ([]byte, error)        { return s.raw, nil }
func (s stored) MediaType() (types.MediaType, error) { return s.manifest.MediaType, nil }
func (s stored) RawConfigFile() ([]byte, error) {
	return s.dir.ReadBlob(s.manifest.Config.Digest.String(), maxImageManifest)
}

func (s stored) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	for _, desc := range append(slices.Clone(s.manifest.Layers), s.manifest.Config) {
		if desc.Digest == h {
			return storedLayer{s.dir, desc}, nil
		}
	}
	return nil, fmt.Errorf("the image has no layer %s", h)
}

type storedLayer struct {
	dir  Dir
	desc v1.Descriptor
}

func (l storedLayer) Digest() (v1.Hash, error)            { return l.desc.Digest, nil }
func (l storedLayer) Size() (int64, error)                { return l.desc.Size, nil }
func (l storedLayer) MediaType() (types.MediaType, error) { return l.desc.MediaType, nil }
func (l storedLayer) Compressed() (io.ReadCloser, error) {
	return l.dir.OpenBlob(l.desc.Digest.String(), 0)
}

// ReadIndex reads the index that has the given digest.
func (d Dir) ReadIndex(index v1.Descriptor) (v1.ImageIndex, error) {
	raw, err := d.ReadBlob(index.Digest.String(), maxImageManifest)
	if err != nil {
		return nil, err
	}
	m, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("parsing index %s: %w", index.Digest, err)
	}
	return storedIndex{dir: d, is: index, raw: raw, manifest: m}, nil
}

// storedIndex is an index of a layout.
type storedIndex struct {
	dir      Dir
	is       v1.Descriptor
	raw      []byte
	manifest *v1.IndexManifest
}

func (s storedIndex) MediaType() (types.MediaType, error)       { return s.is.MediaType, nil }
func (s storedIndex) Digest() (v1.Hash, error)                  { return s.is.Digest, nil }
func (s storedIndex) Size() (int64, error)                      { return int64(len(s.raw)), nil }
func (s storedIndex) RawManifest() ([]byte, error)              { return s.raw, nil }
func (s storedIndex) IndexManifest() (*v1.IndexManifest, error) { return s.manifest, nil }
func (s storedIndex) Image(h v1.Hash) (v1.Image, error)         { return s.dir.ReadImage(h.String()) }

func (s storedIndex) ImageIndex(h v1.Hash) (v1.ImageIndex, error) {
	return nil, fmt.Errorf("the index has no index %s", h)
}
