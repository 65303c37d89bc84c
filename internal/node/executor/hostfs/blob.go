//go:build linux

package hostfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/fsync"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// FetchBlobOp executes op.FetchBlob.
type FetchBlobOp struct{ Op op.FetchBlob }

// The blob stores below the state directory: one for blobs that operations ask to keep,
// and one for blobs that only pass through to a directory or containerd.
const (
	KeptBlobs    = "blobs"
	PassingBlobs = "passing"
)

// passingTime is how long passing blobs are kept for an interrupted operation that may be
// resumed.
const passingTime = 24 * time.Hour

// progressBytes is the interval of progress reports.
const progressBytes = 4 << 20

func blobPath(h *host.Host, store, digest string) string {
	return h.StatePath(store, "sha256", strings.TrimPrefix(digest, "sha256:"))
}

// CheckBlobName rejects a blob whose digest is not valid.
func CheckBlobName(b op.Blob) error {
	hexa, ok := strings.CutPrefix(b.Digest, "sha256:")
	if raw, err := hex.DecodeString(hexa); !ok || err != nil || len(raw) != sha256.Size || hexa != strings.ToLower(hexa) {
		return host.Invalid("%q is not a blob digest", b.Digest)
	}
	if b.Size < 0 {
		return host.Invalid("blob %s has a negative size", b.Digest)
	}
	return nil
}

// HasBlob reports whether a store has a blob. Blobs get their name only after
// verification; the size shows later damage.
func HasBlob(h *host.Host, store string, b op.Blob) bool {
	info, err := os.Stat(blobPath(h, store, b.Digest))
	return err == nil && info.Mode().IsRegular() && info.Size() == b.Size
}

func (x *FetchBlobOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	if err := CheckBlobName(o.Blob); err != nil {
		return host.CheckResult{}, err
	}
	if HasBlob(h, KeptBlobs, o.Blob) {
		return host.CheckResult{}, nil
	}
	return host.CheckResult{Change: "fetch " + BlobText(o.Size)}, nil
}

func (x *FetchBlobOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	_, err := fetchBlob(ctx, h, KeptBlobs, o.Blob, 0, o.Size)
	return err
}

// GetBlob fetches a blob to this host, and returns its path. done and total are added to
// the progress if it is one of several.
func GetBlob(ctx context.Context, h *host.Host, b op.Blob, done, total int64) (string, error) {
	if err := CheckBlobName(b); err != nil {
		return "", err
	}
	if HasBlob(h, KeptBlobs, b) {
		return blobPath(h, KeptBlobs, b.Digest), nil
	}
	if err := forgetPassingBlobs(h); err != nil {
		return "", err
	}
	return fetchBlob(ctx, h, PassingBlobs, b, done, total)
}

// forgetPassingBlobs removes passing blobs of interrupted operations that were not
// resumed.
func forgetPassingBlobs(h *host.Host) error {
	dir := h.StatePath(PassingBlobs, "sha256")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < passingTime { // gone meanwhile, or waited for
			continue
		}
		if err := h.Disk.RemovePath(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// ReleaseBlob removes a passing blob.
func ReleaseBlob(h *host.Host, b op.Blob) error {
	return h.Disk.RemovePath(blobPath(h, PassingBlobs, b.Digest))
}

func fetchBlob(ctx context.Context, h *host.Host, store string, b op.Blob, done, total int64) (string, error) {
	to := blobPath(h, store, b.Digest)
	if HasBlob(h, store, b) {
		return to, nil
	}
	if h.Blobs == nil {
		return "", &op.Error{Reason: "NoBlob", Message: fmt.Sprintf("blob %s is not on this host, and no source for it is known", b.Digest)}
	}
	if err := h.Disk.MkdirAll(filepath.Dir(to), atomicfile.Meta{Mode: 0o700}); err != nil {
		return "", err
	}
	for try := 1; ; try++ {
		again, err := fetchPart(ctx, h, to, b, progressed{done, total})
		var e *op.Error
		if err == nil || !again || try == MaxFetches || !errors.As(err, &e) || e.Reason != "BlobCorrupt" {
			return to, err
		}
	}
}

// MaxFetches limits how often damaged content is fetched again before an error.
const MaxFetches = 4

// fetchPart fetches the missing content of a blob into a file next to its name. Existing
// content is kept for another attempt, unless it is wrong. again reports whether some of
// it did not come from the manager just now: a part may have been damaged on this host or
// another one.
func fetchPart(ctx context.Context, h *host.Host, to string, b op.Blob, p progressed) (again bool, err error) {
	part := to + ".part"
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return false, err
	}
	defer f.Close()
	w := &blobWriter{s: h, f: f, sum: sha256.New(), size: b.Size, p: p}
	if w.have, err = resumeFrom(f, w.sum, b.Size); err != nil {
		return false, err
	}
	again = w.have > 0
	if err := h.RoomFor(filepath.Dir(to), b.Size-w.have); err != nil {
		return again, err
	}
	came := host.Fetched(verified{})
	if w.have < b.Size {
		if came, err = receiveBlob(ctx, h, w, b); err != nil {
			return again, discardPart(part, b, err)
		}
	}
	defer came.Close()
	again = again || came.Shared()
	if got := "sha256:" + hex.EncodeToString(w.sum.Sum(nil)); got != b.Digest {
		came.Verified("")
		return again,
			errors.Join(&op.Error{
				Reason:  "BlobCorrupt",
				Message: fmt.Sprintf("blob %s arrived with digest %s: the bundle is damaged, or the transfer damaged it", b.Digest, got),
			},
				os.Remove(part))
	}
	if err := f.Sync(); err != nil {
		return again, discardPart(part, b, err)
	}
	h.Disk.RunAfter("blob received")
	if err := os.Rename(part, to); err != nil {
		return again, err
	}
	if err := fsync.SyncDir(filepath.Dir(to)); err != nil {
		return again, err
	}
	h.Disk.RunAfter("blob in place")
	came.Verified(to)
	return again, nil
}

// verified verifies content that was already here, in a part.
type verified struct{}

func (verified) Shared() bool { return false }

func (verified) Verified(string) {}

func (verified) Close() error { return nil }

// resumeFrom reads the content of an earlier attempt, and returns where to continue.
func resumeFrom(f *os.File, h hash.Hash, size int64) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() > size {
		return 0, f.Truncate(0)
	}
	have, err := io.Copy(h, f)
	if err != nil {
		return 0, fmt.Errorf("reading the partial download: %w", err)
	}
	return have, nil
}

// progressed is the position of a transfer among several.
type progressed struct{ done, total int64 }

// blobWriter writes the content of a blob as it arrives.
type blobWriter struct {
	s          *host.Host
	f          *os.File
	sum        hash.Hash
	have, size int64
	told       int64
	p          progressed
	err        error
}

func (w *blobWriter) Write(b []byte) (int, error) {
	n, err := w.f.WriteAt(b, w.have)
	w.sum.Write(b[:n])
	w.have += int64(n)
	w.err = err
	if w.have-w.told >= progressBytes || w.have == w.size {
		w.told = w.have
		w.s.Report(host.Progress{Done: w.p.done + w.have, Total: w.p.total})
	}
	return n, err
}

// receiveBlob fetches the missing content.
func receiveBlob(ctx context.Context, h *host.Host, w *blobWriter, b op.Blob) (host.Fetched, error) {
	from := w.have
	w.told = from
	came, err := h.Blobs.FetchBlob(ctx, b, from, w)
	switch {
	case err == nil:
		return came, nil
	case w.err != nil:
		return nil, w.err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case w.have == from:
		return nil, fmt.Errorf("fetching blob %s: %w", b.Digest, err)
	}
	return nil, &op.Error{
		Reason:  "TransferFailed",
		Message: fmt.Sprintf("fetching blob %s: it ended after %d of %d bytes: %v", b.Digest, w.have, b.Size, err),
	}
}

// discardPart returns why a transfer failed; on a full disk it frees the space again.
func discardPart(part string, b op.Blob, err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	full := host.DiskFull(filepath.Dir(part), b.Size)
	return errors.Join(full, os.Remove(part))
}

// BlobText returns the size of a blob for people. A blob of a future bundle has none.
func BlobText(n int64) string {
	if n == 0 {
		return "(size unknown)"
	}
	return bytesize.Format(n)
}
