// Package copies keeps copies of backup sets at other places: in a directory, on another
// machine over SFTP, or in S3 storage. A copy is written atomically, and its name tells its
// cluster and host. Only files with such names are removed.
package copies

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"time"

	"slipway.dev/slipway/internal/node/op"
)

// takenFormat is the format of the snapshot's time in a name.
const takenFormat = "20060102-150405"

// A Name is the name of a copy. Names of clusters and hosts contain no '_', so that the
// parts are unambiguous.
type Name struct {
	Cluster string
	// ID distinguishes clusters with the same name. It is the start of the digest of the
	// CA certificate.
	ID string
	// Host is the host that took the snapshot, Taken the time when it began, and Revision
	// the etcd revision.
	Host     string
	Taken    time.Time
	Revision int64
	// Tag proves that a host of the cluster chose the name. It is "" in names that were
	// written without a key.
	Tag string
}

// A Tagger computes the tag of a name. This is not possible without its key.
type Tagger interface{ Tag(name string) string }

// idDigits is the number of digits of the CA digest in names.
const idDigits = 12

// ClusterID returns the cluster id for names, from the digest of the CA certificate in sets.
func ClusterID(authority string) string { return authority[:min(len(authority), idDigits)] }

// String returns the file name.
func (n Name) String() string {
	if n.Tag != "" {
		return n.tagInput() + "_" + n.Tag + extension
	}
	return n.tagInput() + extension
}

const extension = ".tar.age"

// tagInput returns the input of the tag.
func (n Name) tagInput() string {
	return fmt.Sprintf("%s%s_%d", n.ownerPrefix(), n.Taken.UTC().Format(takenFormat), n.Revision)
}

// WithTag returns the name with its tag.
func (n Name) WithTag(by Tagger) Name {
	n.Tag = by.Tag(n.tagInput())
	return n
}

// IsVerified reports whether the name was chosen by a holder of the key. It says nothing
// about the content: anyone who can write to a target can replace the file.
func (n Name) IsVerified(by Tagger) bool {
	return n.Tag != "" && hmac.Equal([]byte(n.Tag), []byte(by.Tag(n.tagInput())))
}

// ownerPrefix returns the common prefix of all copies of the same host.
func (n Name) ownerPrefix() string { return fmt.Sprintf("%s_%s_%s_", n.Cluster, n.ID, n.Host) }

var names = regexp.MustCompile(`^([a-z0-9-]+)_([0-9a-f]{12})_([a-z0-9.-]+)_([0-9]{8}-[0-9]{6})_([0-9]+)(?:_([0-9a-f]{20}))?\.tar\.age$`)

// ParseName parses the name of a copy. ok is false for any other file, including a name that
// String would spell differently, so that each Name belongs to one file.
func ParseName(file string) (n Name, ok bool) {
	m := names.FindStringSubmatch(file)
	if m == nil {
		return n, false
	}
	taken, err := time.Parse(takenFormat, m[4])
	revision, errRevision := strconv.ParseInt(m[5], 10, 64)
	n = Name{Cluster: m[1], ID: m[2], Host: m[3], Taken: taken, Revision: revision, Tag: m[6]}
	return n, err == nil && errRevision == nil && n.String() == file
}

// hasSameOwner reports whether two names belong to the same host of the same cluster.
func (n Name) hasSameOwner(other Name) bool {
	return n.ownerPrefix() == other.ownerPrefix()
}

// A File is a file at a target.
type File struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	// Modified is the time when it was written, by the target's clock; zero means unknown.
	Modified time.Time `json:"modified,omitzero"`
}

// A Source is a target to read from.
type Source interface {
	// List returns the files whose names have a prefix, including incomplete ones. Some
	// targets return all their files.
	List(ctx context.Context, begin string) ([]File, error)
	// Fetch writes a file's content.
	Fetch(ctx context.Context, name string, to io.Writer) error
	io.Closer
}

// A Target is a place for copies.
type Target interface {
	Source
	// Put writes a file atomically with the content that write writes, and reads it back
	// to verify it.
	Put(ctx context.Context, name string, write func(io.Writer) error) error
	// Remove removes a file. A missing file is not an error.
	Remove(ctx context.Context, name string) error
}

// Open connects to a target that is not a directory of a host. secret has the credentials.
func Open(ctx context.Context, to op.CopyTarget, secret []byte) (Target, error) {
	switch {
	case to.SSH != nil:
		return dialSSH(ctx, *to.SSH, secret)
	case to.S3 != nil:
		b, err := openS3(*to.S3, secret)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
	return nil, fmt.Errorf("target %s cannot be opened from this machine", to.Name)
}

// Sent is the result of a successful copy.
type Sent struct {
	// Left is the number of copies of the same host at the target.
	Left int
	// Unremoved is the reason why old copies could not be removed, nil if they were.
	Unremoved error
}

// SendCopy writes a copy to a target, and removes the oldest copies of the same host beyond the
// number to keep: before the copy, so that a full target gets space if the number was
// reduced, and after it. Copies that cannot be removed do not prevent the new copy. Only
// names that by verifies count; a host without a key (nil) counts all of its copies.
func SendCopy(ctx context.Context, to Target, name Name, by Tagger, keep int, write func(io.Writer) error) (out Sent, err error) {
	files, err := to.List(ctx, name.ownerPrefix())
	if err != nil {
		return out, fmt.Errorf("listing the target: %w", err)
	}
	cut := removeIncomplete(ctx, to, name, files)
	r := retention{to: to, name: name, by: by, keep: max(keep, 1)}
	before, full := r.removeBeforeCopy(ctx)
	if err := to.Put(ctx, name.String(), write); err != nil {
		return out, errors.Join(err, cut, full)
	}
	left, stays := r.removeAfterCopy(ctx)
	if stays != nil && left == 0 { // the copies could not be listed
		left = before + 1
	}
	return Sent{left, errors.Join(cut, stays)}, nil
}

// RemoveIncomplete removes the incomplete files of a host at a target, which a killed program
// has left.
func RemoveIncomplete(ctx context.Context, to Target, name Name) error {
	files, err := to.List(ctx, "")
	if err != nil {
		return fmt.Errorf("listing the target: %w", err)
	}
	return removeIncomplete(ctx, to, name, files)
}

// removeIncomplete removes incomplete files of the same host.
func removeIncomplete(ctx context.Context, to Target, name Name, files []File) (err error) {
	for _, f := range files {
		part := parts.FindStringSubmatch(f.Name)
		if part == nil {
			continue
		}
		if n, ok := ParseName(part[1]); ok && n.hasSameOwner(name) {
			err = errors.Join(err, to.Remove(ctx, f.Name))
		}
	}
	if err != nil {
		err = fmt.Errorf("removing incomplete files: %w", err)
	}
	return err
}

// A Copy is a file with the name of a copy.
type Copy struct {
	Name
	File
}

// ListCopies returns the chosen copies at a target whose names have a prefix, newest first.
func ListCopies(ctx context.Context, from Source, begin string, chosen func(Name) bool) ([]Copy, error) {
	files, err := from.List(ctx, begin)
	if err != nil {
		return nil, fmt.Errorf("listing the target: %w", err)
	}
	return SelectCopies(files, chosen), nil
}

// maxBytes is the maximum size of a copy. A file with a larger or negative size is not a
// copy, whatever its name.
const maxBytes = maxParts * partSize

// SelectCopies returns the chosen copies among files, newest first.
func SelectCopies(files []File, chosen func(Name) bool) (out []Copy) {
	for _, f := range files {
		if n, ok := ParseName(f.Name); ok && chosen(n) && f.Bytes >= 0 && f.Bytes <= maxBytes {
			out = append(out, Copy{n, f})
		}
	}
	return sortCopies(out, CompareNewestFirst)
}

// sortCopies sorts pointers, because the compiler shares that code between types, which keeps
// the node helper small.
func sortCopies(list []Copy, order func(a, b Copy) int) (out []Copy) {
	all := make([]*Copy, 0, len(list))
	for i := range list {
		all = append(all, &list[i])
	}
	slices.SortFunc(all, func(a, b *Copy) int { return order(*a, *b) })
	for _, c := range all {
		out = append(out, *c)
	}
	return out
}

// CompareNewestFirst compares copies, newest first: by etcd's revision, which all members share and a
// restore raises, and only then by time, because clocks may have been wrong. It uses the
// data in names, which only verified names make reliable.
func CompareNewestFirst(a, b Copy) int {
	return cmp.Or(cmp.Compare(b.Revision, a.Revision), b.Taken.Compare(a.Taken), cmp.Compare(a.File.Name, b.File.Name))
}

// partName returns the name of an incomplete file, which is not the name of a copy.
func partName(name string) string { return "." + name + ".part" }

// newPartName returns an unpredictable name of an incomplete file, which no other writer uses.
func newPartName(name string) string { return partName(name + "." + rand.Text()[:8]) }

var parts = regexp.MustCompile(`^\.(.+\.tar\.age)(\.[A-Z2-7]{8})?\.part$`)

// A counter computes the size and the checksum of the data that it passes on.
type counter struct {
	to    io.Writer
	bytes int64
	sum   interface {
		io.Writer
		Sum([]byte) []byte
	}
}

func newCounter(to io.Writer) *counter { return &counter{to: to, sum: sha256.New()} }

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.bytes += int64(n)
	_, _ = c.sum.Write(p[:n]) // never fails
	return n, err
}

// readBack returns an error if a file differs from the written data.
func (c *counter) readBack(f io.ReadSeeker) error {
	back := newCounter(io.Discard)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(back, f); err != nil {
		return err
	}
	return c.compareReadBack(back)
}

// compareReadBack returns an error if the data that was read back differs from the written data.
func (c *counter) compareReadBack(back *counter) error {
	if c.bytes != back.bytes || hex.EncodeToString(c.sum.Sum(nil)) != hex.EncodeToString(back.sum.Sum(nil)) {
		return fmt.Errorf("the file at the target differs from the written data: read %d bytes, wrote %d", back.bytes, c.bytes)
	}
	return nil
}
