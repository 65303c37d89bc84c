package pack

import (
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"

	"slipway.dev/slipway/internal/safefile"
)

// A Layer is a File as a layer of a container image.
type Layer struct{ File }

var _ v1.Layer = Layer{}

// Digest returns the digest of the compressed layer.
func (l Layer) Digest() (v1.Hash, error) { return v1.NewHash(l.File.Digest) }

// DiffID is the digest of the tar in it.
func (l Layer) DiffID() (v1.Hash, error) { return v1.NewHash(l.File.DiffID) }

// Compressed opens the compressed layer.
func (l Layer) Compressed() (io.ReadCloser, error) { return safefile.Open(l.Path) }

// Uncompressed opens the tar in the layer.
func (l Layer) Uncompressed() (io.ReadCloser, error) {
	f, err := safefile.Open(l.Path)
	if err != nil {
		return nil, err
	}
	zr, err := gzip.NewReader(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{zr, f}, nil
}

// Size returns the size of the compressed layer, in bytes.
func (l Layer) Size() (int64, error) { return l.File.Size, nil }

// MediaType returns the type of a compressed OCI layer.
func (l Layer) MediaType() (types.MediaType, error) { return types.OCILayer, nil }

// DiskPath returns the path of the compressed layer.
func (l Layer) DiskPath() string { return l.Path }
