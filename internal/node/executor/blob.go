//go:build linux

package executor

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
	"slipway.dev/slipway/internal/node/op"
)

// fetchBlobOp executes op.FetchBlob.
type fetchBlobOp struct{ o op.FetchBlob }

// The blob stores below the state directory: one for blobs that operations ask to keep,
// and one for blobs that only pass through to a directory or containerd.
const (
	keptBlobs    = "blobs"
	passingBlobs = "passing"
)

// passingTime is how long passing blobs are kept for an interrupted operation that may be
// resumed.
const passingTime = 24 * time.Hour

// spare is the free space that a transfer leaves on a file system, in bytes: a full one
// breaks more than the transfer.
const spare = 64 << 20

// progressBytes is the interval of progress reports.
const progressBytes = 4 << 20

func (s *session) blobPath(store, digest string) string {
	return s.state(store, "sha256", strings.TrimPrefix(digest, "sha256:"))
}

func checkBlobName(b op.Blob) error {
	hexa, ok := strings.CutPrefix(b.Digest, "sha256:")
	if raw, err := hex.DecodeString(hexa); !ok || err != nil || len(raw) != sha256.Size || hexa != strings.ToLower(hexa) {
		return invalid("%q is not a blob digest", b.Digest)
	}
	if b.Size < 0 {
		return invalid("blob %s has a negative size", b.Digest)
	}
	return nil
}

// haveBlob reports whether a store has a blob. Blobs get their name only after
// verification; the size shows later damage.
func (s *session) haveBlob(store string, b op.Blob) bool {
	info, err := os.Stat(s.blobPath(store, b.Digest))
	return err == nil && info.Mode().IsRegular() && info.Size() == b.Size
}

func (x *fetchBlobOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	if err := checkBlobName(o.Blob); err != nil {
		return verdict{}, err
	}
	if s.haveBlob(keptBlobs, o.Blob) {
		return verdict{}, nil
	}
	return verdict{change: "fetch " + blobText(o.Size)}, nil
}

func (x *fetchBlobOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	o := x.o
	_, err := s.fetch(ctx, keptBlobs, o.Blob, 0, o.Size)
	return err
}

// blob fetches a blob to this host, and returns its path. done and total are added to the
// progress if it is one of several.
func (s *session) blob(ctx context.Context, b op.Blob, done, total int64) (string, error) {
	if err := checkBlobName(b); err != nil {
		return "", err
	}
	if s.haveBlob(keptBlobs, b) {
		return s.blobPath(keptBlobs, b.Digest), nil
	}
	if err := s.forgetPassed(); err != nil {
		return "", err
	}
	return s.fetch(ctx, passingBlobs, b, done, total)
}

// forgetPassed removes passing blobs of interrupted operations that were not resumed.
func (s *session) forgetPassed() error {
	dir := s.state(passingBlobs, "sha256")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < passingTime { // gone meanwhile, or waited for
			continue
		}
		if err := s.disk.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// letGo removes a passing blob.
func (s *session) letGo(b op.Blob) error {
	return s.disk.Remove(s.blobPath(passingBlobs, b.Digest))
}

func (s *session) fetch(ctx context.Context, store string, b op.Blob, done, total int64) (string, error) {
	to := s.blobPath(store, b.Digest)
	if s.haveBlob(store, b) {
		return to, nil
	}
	if s.Blobs == nil {
		return "", &op.Error{Reason: "NoBlob", Message: fmt.Sprintf("blob %s is not on this host, and no source for it is known", b.Digest)}
	}
	if err := s.disk.MkdirAll(filepath.Dir(to), atomicfile.Meta{Mode: 0o700}); err != nil {
		return "", err
	}
	for try := 1; ; try++ {
		again, err := s.fetchPart(ctx, to, b, progressed{done, total})
		var e *op.Error
		if err == nil || !again || try == maxFetches || !errors.As(err, &e) || e.Reason != "BlobCorrupt" {
			return to, err
		}
	}
}

// maxFetches limits how often damaged content is fetched again before an error.
const maxFetches = 4

// fetchPart fetches the missing content of a blob into a file next to its name. Existing
// content is kept for another attempt, unless it is wrong. again reports whether some of
// it did not come from the manager just now: a part may have been damaged on this host or
// another one.
func (s *session) fetchPart(ctx context.Context, to string, b op.Blob, p progressed) (again bool, err error) {
	part := to + ".part"
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return false, err
	}
	defer f.Close()
	w := &blobWriter{s: s, f: f, sum: sha256.New(), size: b.Size, p: p}
	if w.have, err = resumeFrom(f, w.sum, b.Size); err != nil {
		return false, err
	}
	again = w.have > 0
	if err := s.roomFor(filepath.Dir(to), b.Size-w.have); err != nil {
		return again, err
	}
	came := Fetched(verified{})
	if w.have < b.Size {
		if came, err = s.receive(ctx, w, b); err != nil {
			return again, s.giveUp(part, b, err)
		}
	}
	defer came.Close()
	again = again || came.Shared()
	if got := "sha256:" + hex.EncodeToString(w.sum.Sum(nil)); got != b.Digest {
		came.Verified("")
		return again,
			errors.Join(&op.Error{Reason: "BlobCorrupt",
				Message: fmt.Sprintf("blob %s arrived with digest %s: the bundle is damaged, or the transfer damaged it", b.Digest, got)},
				os.Remove(part))
	}
	if err := f.Sync(); err != nil {
		return again, s.giveUp(part, b, err)
	}
	s.disk.Did("blob received")
	if err := os.Rename(part, to); err != nil {
		return again, err
	}
	if err := fsync.Dir(filepath.Dir(to)); err != nil {
		return again, err
	}
	s.disk.Did("blob in place")
	came.Verified(to)
	return again, nil
}

// verified verifies content that was already here, in a part.
type verified struct{}

func (verified) Shared() bool    { return false }
func (verified) Verified(string) {}
func (verified) Close() error    { return nil }

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
	s          *session
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
		w.s.tell(Progress{Done: w.p.done + w.have, Total: w.p.total})
	}
	return n, err
}

// receive fetches the missing content.
func (s *session) receive(ctx context.Context, w *blobWriter, b op.Blob) (Fetched, error) {
	from := w.have
	w.told = from
	came, err := s.Blobs.FetchBlob(ctx, b, from, w)
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
	return nil, &op.Error{Reason: "TransferFailed",
		Message: fmt.Sprintf("fetching blob %s: it ended after %d of %d bytes: %v", b.Digest, w.have, b.Size, err)}
}

// giveUp returns why a transfer failed; on a full disk it frees the space again.
func (s *session) giveUp(part string, b op.Blob, err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	full := diskFull(filepath.Dir(part), b.Size)
	return errors.Join(full, os.Remove(part))
}

// roomFor rejects content that would not fit, after content held for other hosts was
// dropped.
func (s *session) roomFor(dir string, need int64) error {
	err := roomFor(dir, need)
	if err != nil && s.Blobs != nil {
		s.Blobs.MakeRoom()
		err = roomFor(dir, need)
	}
	return err
}

func roomFor(dir string, need int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("reading the free space below %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < need+spare {
		return diskFull(dir, need)
	}
	return nil
}

func diskFull(dir string, need int64) error {
	var st unix.Statfs_t
	free := int64(0)
	if unix.Statfs(dir, &st) == nil {
		free = int64(st.Bavail) * st.Bsize
	}
	return &op.Error{
		Reason: "DiskFull",
		Message: fmt.Sprintf("the disk of %s is full: %s are needed in addition to a reserve of %s, but only %s are free",
			dir, bytesize.Bytes(need), bytesize.Bytes(spare), bytesize.Bytes(free)),
	}
}

// blobText returns the size of a blob for people. A blob of a future bundle has none.
func blobText(n int64) string {
	if n == 0 {
		return "(size unknown)"
	}
	return bytesize.Bytes(n)
}
