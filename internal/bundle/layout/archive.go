package layout

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"

	"slipway.dev/slipway/internal/safefile"
)

// ErrArchive is the error for a file that is not a complete archive of a layout.
var ErrArchive = errors.New("not a complete .tar.zst archive of an OCI image layout")

// maxBlob is more than any disk has, in bytes.
const maxBlob = 1 << 60

// maxIndex bounds index.json and the marker in an archive, in bytes.
const maxIndex = 1 << 20

// Pack writes the layout as a zstd-compressed tar whose bytes depend on the
// content alone.
func (d Dir) Pack(ctx context.Context, w io.Writer) error {
	root, err := d.ReadRoot()
	if err != nil {
		return err
	}
	return d.PackAs(ctx, w, root, nil)
}

// PackAs writes the layout as Pack does, but with the given root entry, and without the
// given blobs.
func (d Dir) PackAs(ctx context.Context, w io.Writer, root v1.Descriptor, without map[string]bool) error {
	index, err := indexOf(root)
	if err != nil {
		return err
	}
	// The blobs are compressed already: the fastest level loses nothing. One
	// worker, so that the bytes do not depend on the number of processors.
	zw, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	tw := tar.NewWriter(zw)
	if err := d.packAll(ctx, tw, index, without); err != nil {
		_ = zw.Close() // fails for the same reason, if at all
		return err
	}
	return zw.Close()
}

func (d Dir) packAll(ctx context.Context, tw *tar.Writer, index []byte, without map[string]bool) error {
	entries, err := safefile.ReadDir(filepath.Join(string(d), blobDir))
	if err != nil {
		return err
	}
	if err := errors.Join(packBytes(tw, marker, []byte(markerText)), packBytes(tw, indexName, index)); err != nil {
		return err
	}
	for _, e := range entries {
		if without["sha256:"+e.Name()] {
			continue
		}
		if err := errors.Join(ctx.Err(), d.packOne(tw, blobDir+"/"+e.Name())); err != nil {
			return err
		}
	}
	return tw.Close()
}

func packBytes(tw *tar.Writer, name string, data []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data)), Format: tar.FormatPAX}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err := tw.Write(data)
	return err
}

func (d Dir) packOne(tw *tar.Writer, name string) error {
	f, err := safefile.Open(filepath.Join(string(d), name))
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: fi.Size(), Format: tar.FormatPAX}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(tw, f)
	return err
}

// Unpack makes a layout at dir from an archive. Every blob is verified as it
// is written; anything that does not belong into a layout is refused.
func Unpack(ctx context.Context, r io.Reader, dir string) (Dir, error) {
	d, err := Create(dir)
	if err != nil {
		return "", err
	}
	zr, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(64<<20))
	if err != nil {
		return "", err
	}
	defer zr.Close()
	tr := tar.NewReader(zr)
	indexed := false
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrArchive, err)
		}
		if err := errors.Join(ctx.Err(), d.unpackOne(tr, h)); err != nil {
			return "", err
		}
		indexed = indexed || h.Name == indexName
	}
	if !indexed {
		return "", fmt.Errorf("%w: it has no %s", ErrArchive, indexName)
	}
	return d, safefile.SyncFiles(filepath.Join(dir, blobDir))
}

func (d Dir) unpackOne(tr io.Reader, h *tar.Header) error {
	switch sum, isBlob := strings.CutPrefix(h.Name, blobDir+"/"); {
	case h.Typeflag != tar.TypeReg:
		return fmt.Errorf("%w: %q is not a regular file", ErrArchive, h.Name)
	case isBlob:
		if err := checkSpace(string(d), min(h.Size, maxBlob)); err != nil {
			return err
		}
		err := d.AddBlob("sha256:"+sum, tr)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: it ends inside blob %s", ErrArchive, sum)
		}
		return err
	case h.Name == marker:
		return nil // there already, in our own words
	case h.Name == indexName:
		data, err := io.ReadAll(io.LimitReader(tr, maxIndex))
		if err != nil {
			return fmt.Errorf("%w: %w", ErrArchive, err)
		}
		return d.writeFile(indexName, data)
	}
	return fmt.Errorf("%w: %q does not belong in a layout", ErrArchive, h.Name)
}
