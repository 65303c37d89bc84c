// Package layout keeps content-addressed blobs as an OCI image layout: a
// directory, or the same as one .tar.zst file.
package layout

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/safefile"
)

const (
	marker     = "oci-layout"
	markerText = `{"imageLayoutVersion":"1.0.0"}`
	indexName  = "index.json"
	blobDir    = "blobs/sha256"
)

var hexForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// ErrCorrupt is content that is not what its digest says.
var ErrCorrupt = errors.New("content does not match its digest")

// ErrForm is a layout whose own files are not of the form that they have in any.
var ErrForm = errors.New("not a valid OCI image layout")

// Dir is the directory of an OCI image layout.
type Dir string

// IsLayout reports whether dir is an OCI image layout.
func IsLayout(dir string) bool {
	_, err := safefile.Stat(filepath.Join(dir, marker))
	return err == nil
}

// Create makes an empty layout at dir, which may exist.
func Create(dir string) (Dir, error) {
	d, blobs := Dir(dir), filepath.Join(dir, blobDir)
	if err := safefile.MkdirAll(blobs, 0o755); err != nil {
		return "", err
	}
	if IsLayout(dir) {
		return d, nil
	}
	return d, errors.Join(safefile.SyncDir(filepath.Dir(blobs)), d.writeFile(marker, []byte(markerText)))
}

// writeFile replaces a file of the layout atomically.
func (d Dir) writeFile(name string, data []byte) error {
	tmp, err := safefile.CreateTemp(string(d), ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = safefile.Remove(tmp.Name()) }() // it has another name by then
	defer tmp.Close()
	_, err = tmp.Write(data)
	if err := errors.Join(err, tmp.Chmod(0o644)); err != nil {
		return err
	}
	return safefile.Commit(tmp, filepath.Join(string(d), name))
}

func (d Dir) blobPath(digest string) (string, error) {
	sum, ok := strings.CutPrefix(digest, "sha256:")
	if !ok || !hexForm.MatchString(sum) {
		return "", fmt.Errorf("%q is not a sha256 digest: %w", digest, ErrForm)
	}
	return filepath.Join(string(d), blobDir, sum), nil
}

// OpenBlob opens the blob at offset.
func (d Dir) OpenBlob(digest string, offset int64) (io.ReadCloser, error) {
	p, err := d.blobPath(digest)
	if err != nil {
		return nil, err
	}
	f, err := safefile.Open(p)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// ReadBlob reads a blob of at most limit bytes and verifies it.
func (d Dir) ReadBlob(digest string, limit int64) ([]byte, error) {
	f, err := d.OpenBlob(digest, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("blob %s is larger than %d bytes: %w", digest, limit, ErrForm)
	}
	if DigestOf(data) != digest {
		return nil, fmt.Errorf("blob %s: %w", digest, ErrCorrupt)
	}
	return data, nil
}

// BlobSize returns the size of a blob in bytes.
func (d Dir) BlobSize(digest string) (int64, error) {
	p, err := d.blobPath(digest)
	if err != nil {
		return 0, err
	}
	fi, err := safefile.Stat(p)
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

// Blobs is the open directory of a layout's blobs.
type Blobs struct {
	dir  Dir
	root *os.Root
}

// OpenBlobs opens the directory of the blobs, to read the sizes of many. The caller closes
// it.
func (d Dir) OpenBlobs() (*Blobs, error) {
	root, err := safefile.OpenRoot(filepath.Join(string(d), blobDir))
	if err != nil {
		return nil, err
	}
	return &Blobs{d, root}, nil
}

// Size returns the size of a blob in bytes.
func (b *Blobs) Size(digest string) (int64, error) {
	path, err := b.dir.blobPath(digest)
	if err != nil {
		return 0, err
	}
	fi, err := b.root.Lstat(filepath.Base(path))
	if err == nil && fi.Mode().IsRegular() {
		return fi.Size(), nil
	}
	return b.dir.BlobSize(digest) // a link, or an error with the whole path
}

// Close closes the directory.
func (b *Blobs) Close() error { return b.root.Close() }

// VerifyBlob reads the whole blob and compares it with its digest.
func (d Dir) VerifyBlob(digest string) error {
	f, err := d.OpenBlob(digest, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if "sha256:"+hex.EncodeToString(h.Sum(nil)) != digest {
		return fmt.Errorf("blob %s: %w", digest, ErrCorrupt)
	}
	return nil
}

// UnknownFiles returns the files below the blob directory whose digests are not in known.
func (d Dir) UnknownFiles(known map[string]bool) ([]string, error) {
	entries, err := safefile.ReadDir(filepath.Join(string(d), blobDir))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if !known["sha256:"+e.Name()] {
			out = append(out, blobDir+"/"+e.Name())
		}
	}
	return out, nil
}

// DigestOf returns the digest of data.
func DigestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// AddBytes stores data and returns its digest.
func (d Dir) AddBytes(data []byte) (string, error) {
	digest := DigestOf(data)
	return digest, d.AddBlob(digest, bytes.NewReader(data))
}

// AddFile stores the file at path, by a hard link where the file system allows
// it. The caller vouches for the digest and never writes to the file again.
func (d Dir) AddFile(digest, path string) error {
	dst, err := d.blobPath(digest)
	if err != nil {
		return err
	}
	if has, err := d.HasBlob(digest); has || err != nil {
		return err
	}
	if err := safefile.Link(path, dst); err == nil || errors.Is(err, fs.ErrExist) {
		return nil // there already: another process was faster
	}
	f, err := safefile.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return d.AddBlob(digest, f)
}

// HasBlob reports whether the layout has a blob, after reading it. A damaged blob is
// removed, so that it can be added again: a crash may have left zeros in it.
func (d Dir) HasBlob(digest string) (bool, error) {
	switch err := d.VerifyBlob(digest); {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case !errors.Is(err, ErrCorrupt):
		return false, err
	}
	p, err := d.blobPath(digest)
	if err != nil {
		return false, err
	}
	if err := safefile.Remove(p); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return false, nil
}

// AddBlob stores what r reads under digest, and refuses anything else. r is not read
// if the blob is there.
func (d Dir) AddBlob(digest string, r io.Reader) error {
	dst, err := d.blobPath(digest)
	if err != nil {
		return err
	}
	if has, err := d.HasBlob(digest); has || err != nil {
		return err
	}
	tmp, err := safefile.CreateTemp(filepath.Dir(dst), ".blob-*")
	if err != nil {
		return err
	}
	defer func() { _ = safefile.Remove(tmp.Name()) }() // it has another name by then
	defer tmp.Close()
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(&spaceChecker{to: tmp}, h), r); err != nil {
		return err
	}
	if "sha256:"+hex.EncodeToString(h.Sum(nil)) != digest {
		return fmt.Errorf("blob %s: %w", digest, ErrCorrupt)
	}
	if err := errors.Join(tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	// SetRoot and Unpack sync all blobs at once. Caches without a root verify their blobs
	// before use.
	return safefile.Rename(tmp.Name(), dst)
}

const (
	// spare is the space that must remain free on a disk, in bytes.
	spare = 64 << 20
	// step is how much is written before the disk is looked at again, in bytes.
	step = 16 << 20
)

// spaceChecker writes to a file while its disk has space, because the input may be
// endless.
type spaceChecker struct {
	to   *os.File
	left int64 // of the room that was seen
}

func (r *spaceChecker) Write(p []byte) (int, error) {
	if r.left -= int64(len(p)); r.left < 0 {
		if err := checkSpace(filepath.Dir(r.to.Name()), step); err != nil {
			return 0, err
		}
		r.left = step
	}
	return r.to.Write(p)
}

// checkSpace returns an error if the disk of a directory has no space for the given
// bytes.
func checkSpace(dir string, bytes int64) error {
	if err := transfer.CheckRoom(dir, bytes+spare); err != nil {
		return fmt.Errorf("%w: %w", syscall.ENOSPC, err)
	}
	return nil
}

// SetRoot writes index.json with one entry, the root of everything: whole, or
// not at all. All blobs are on disk before.
func (d Dir) SetRoot(root v1.Descriptor) error {
	data, err := indexOf(root)
	if err != nil {
		return err
	}
	return errors.Join(safefile.SyncFiles(filepath.Join(string(d), blobDir)), d.writeFile(indexName, data))
}

func indexOf(root v1.Descriptor) ([]byte, error) {
	return json.Marshal(v1.IndexManifest{
		SchemaVersion: 2,
		MediaType:     types.OCIImageIndex,
		Manifests:     []v1.Descriptor{root},
	})
}

// ReadRoot reads the one entry of index.json.
func (d Dir) ReadRoot() (v1.Descriptor, error) {
	f, err := safefile.Open(filepath.Join(string(d), indexName))
	if err != nil {
		return v1.Descriptor{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIndex))
	if err != nil {
		return v1.Descriptor{}, err
	}
	return parseRoot(data)
}

func parseRoot(data []byte) (v1.Descriptor, error) {
	ix, err := v1.ParseIndexManifest(bytes.NewReader(data))
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("parsing %s: %w: %w", indexName, ErrForm, err)
	}
	if len(ix.Manifests) != 1 {
		return v1.Descriptor{}, fmt.Errorf("%s has %d entries, but a bundle has exactly one: %w", indexName, len(ix.Manifests), ErrForm)
	}
	root := ix.Manifests[0]
	if root.Digest.Algorithm != "sha256" || !hexForm.MatchString(root.Digest.Hex) {
		return v1.Descriptor{}, fmt.Errorf("%s does not contain a sha256 digest: %w", indexName, ErrForm)
	}
	return root, nil
}

// LendBlob gives a blob to another layout, by a hard link where the file system
// allows it.
func (d Dir) LendBlob(digest string, to Dir) error {
	path, err := d.blobPath(digest)
	if err != nil {
		return err
	}
	return to.AddFile(digest, path)
}
