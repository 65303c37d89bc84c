// Package copies keeps copies of backup sets elsewhere: in a directory, on another
// machine, or in storage that is spoken to in the way of S3. A copy is there whole or not at all, under a name that says whose it is;
// nothing but such names is ever removed.
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

// takenFormat is when a snapshot was begun, in its name.
const takenFormat = "20060102-150405"

// A Name is that of a copy. Names of clusters and hosts have no '_' in them, so that
// one is not taken for another.
type Name struct {
	Cluster string
	// ID tells clusters of one name apart: see IDOf.
	ID string
	// Host is whose snapshot it is, Taken when that was begun, and Revision etcd's.
	Host     string
	Taken    time.Time
	Revision int64
	// Tag proves that a host of the cluster chose the name. It is "" in names that were
	// written without a key.
	Tag string
}

// A Tagger computes the tag of a name. Nobody without its key can.
type Tagger interface{ Tag(name string) string }

// idDigits is how much of the digest of an authority is in names.
const idDigits = 12

// IDOf is how names tell of a cluster by the digest of its authority's certificate,
// as sets have it.
func IDOf(authority string) string { return authority[:min(len(authority), idDigits)] }

// String is the name of the file.
func (n Name) String() string {
	if n.Tag != "" {
		return n.untagged() + "_" + n.Tag + extension
	}
	return n.untagged() + extension
}

const extension = ".tar.age"

// untagged is what a tag is made of.
func (n Name) untagged() string {
	return fmt.Sprintf("%s%s_%d", n.owner(), n.Taken.UTC().Format(takenFormat), n.Revision)
}

// Tagged returns the name with its tag.
func (n Name) Tagged(by Tagger) Name {
	n.Tag = by.Tag(n.untagged())
	return n
}

// Verified reports whether the name was chosen by a holder of the key. What the file
// holds is another question: whoever can write to a target can put something else below
// a name that was there.
func (n Name) Verified(by Tagger) bool {
	return n.Tag != "" && hmac.Equal([]byte(n.Tag), []byte(by.Tag(n.untagged())))
}

// owner is what the names of all copies of the same host begin with.
func (n Name) owner() string { return fmt.Sprintf("%s_%s_%s_", n.Cluster, n.ID, n.Host) }

var names = regexp.MustCompile(`^([a-z0-9-]+)_([0-9a-f]{12})_([a-z0-9.-]+)_([0-9]{8}-[0-9]{6})_([0-9]+)(?:_([0-9a-f]{20}))?\.tar\.age$`)

// Parse reads the name of a copy; false is another file's. No two files have the same
// name for it: one that is spelled otherwise than String does is not a copy.
func Parse(file string) (n Name, ok bool) {
	m := names.FindStringSubmatch(file)
	if m == nil {
		return n, false
	}
	taken, err := time.Parse(takenFormat, m[4])
	revision, errRevision := strconv.ParseInt(m[5], 10, 64)
	n = Name{Cluster: m[1], ID: m[2], Host: m[3], Taken: taken, Revision: revision, Tag: m[6]}
	return n, err == nil && errRevision == nil && n.String() == file
}

// same says that two are of one host of one cluster.
func (n Name) same(other Name) bool {
	return n.owner() == other.owner()
}

// A File is one that lies at a target.
type File struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	// Modified is when it was written, by the target's own clock; zero is not known.
	Modified time.Time `json:"modified,omitzero"`
}

// A Source is a target to read from.
type Source interface {
	// List answers the files whose names begin so, and what was cut off of such;
	// others too where a place lists all it has.
	List(ctx context.Context, begin string) ([]File, error)
	// Fetch writes a file's content.
	Fetch(ctx context.Context, name string, to io.Writer) error
	io.Closer
}

// A Target is where copies are kept.
type Target interface {
	Source
	// Put has a file be there with what write writes, whole or not at all, and has
	// read it back: it is what was written.
	Put(ctx context.Context, name string, write func(io.Writer) error) error
	// Remove removes a file; one that is not there is no error.
	Remove(ctx context.Context, name string) error
}

// Open reaches a target that is not a directory of a host. The secret is what it is
// logged in to with.
func Open(ctx context.Context, to op.CopyTarget, secret []byte) (Target, error) {
	switch {
	case to.SSH != nil:
		return dial(ctx, *to.SSH, secret)
	case to.S3 != nil:
		return storage(*to.S3, secret)
	}
	return nil, fmt.Errorf("%s is no target that can be reached from here", to.Name)
}

// Sent is what came of a copy that is there.
type Sent struct {
	// Left is how many of the same host are there now.
	Left int
	// Unremoved is why what is to go is still there; nil if it is gone.
	Unremoved error
}

// Send puts a copy there, and removes the oldest of the same host beyond the number
// that is kept: before, so that a place that is full has room when fewer are to be kept,
// and after. What cannot be removed keeps no new copy from being there. Only names that
// by verifies count; nil is for a host without a key, which counts all of its own.
func Send(ctx context.Context, to Target, name Name, by Tagger, keep int, write func(io.Writer) error) (out Sent, err error) {
	files, err := to.List(ctx, name.owner())
	if err != nil {
		return out, fmt.Errorf("listing what is there: %w", err)
	}
	cut := tidy(ctx, to, name, files)
	r := retention{to: to, name: name, by: by, keep: max(keep, 1)}
	before, full := r.before(ctx)
	if err := to.Put(ctx, name.String(), write); err != nil {
		return out, errors.Join(err, cut, full)
	}
	left, stays := r.after(ctx)
	if stays != nil && left == 0 { // they could not be listed
		left = before + 1
	}
	return Sent{left, errors.Join(cut, stays)}, nil
}

// tidy removes what the same host has left that was cut off.
func tidy(ctx context.Context, to Target, name Name, files []File) (err error) {
	for _, f := range files {
		part := parts.FindStringSubmatch(f.Name)
		if part == nil {
			continue
		}
		if n, ok := Parse(part[1]); ok && n.same(name) {
			err = errors.Join(err, to.Remove(ctx, f.Name))
		}
	}
	if err != nil {
		err = fmt.Errorf("removing what was cut off: %w", err)
	}
	return err
}

// A Copy is a file with the name of one.
type Copy struct {
	Name
	File
}

// Own are the copies at a target whose names begin so and that are chosen, newest first.
func Own(ctx context.Context, from Source, begin string, chosen func(Name) bool) ([]Copy, error) {
	files, err := from.List(ctx, begin)
	if err != nil {
		return nil, fmt.Errorf("listing what is there: %w", err)
	}
	return Among(files, chosen), nil
}

// maxBytes is more than any copy has: what is told to have more, or less than nothing, is
// none, whatever it is called.
const maxBytes = maxParts * partSize

// Among are those of some files, newest first.
func Among(files []File, chosen func(Name) bool) (out []Copy) {
	for _, f := range files {
		if n, ok := Parse(f.Name); ok && chosen(n) && f.Bytes >= 0 && f.Bytes <= maxBytes {
			out = append(out, Copy{n, f})
		}
	}
	return ordered(out, Newer)
}

// ordered sorts by pointers: sorting these is compiled once for all types, and the node
// helper is to be small.
func ordered(list []Copy, order func(a, b Copy) int) (out []Copy) {
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

// Newer orders copies, newest first: by etcd's revision, which all members share and
// which a restore takes further, and only then by clocks, which may have been wrong. It
// orders by what names say, which means something only of names that were verified.
func Newer(a, b Copy) int {
	return cmp.Or(cmp.Compare(b.Revision, a.Revision), b.Taken.Compare(a.Taken), cmp.Compare(a.File.Name, b.File.Name))
}

// partOf is the name under which a file is written: not that of a copy.
func partOf(name string) string { return "." + name + ".part" }

// ownPart is a name of a part that nobody knows beforehand, or writes to as well.
func ownPart(name string) string { return partOf(name + "." + rand.Text()[:8]) }

var parts = regexp.MustCompile(`^\.(.+\.tar\.age)(\.[A-Z2-7]{8})?\.part$`)

// A counter sums up what goes through it.
type counter struct {
	to    io.Writer
	bytes int64
	sum   interface {
		io.Writer
		Sum([]byte) []byte
	}
}

func counting(to io.Writer) *counter { return &counter{to: to, sum: sha256.New()} }

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.bytes += int64(n)
	_, _ = c.sum.Write(p[:n]) // never fails
	return n, err
}

// readBack says whether a file is what was written to it.
func (c *counter) readBack(f io.ReadSeeker) error {
	back := counting(io.Discard)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(back, f); err != nil {
		return err
	}
	return c.compare(back)
}

// compare says that what was read back is not what was written.
func (c *counter) compare(back *counter) error {
	if c.bytes != back.bytes || hex.EncodeToString(c.sum.Sum(nil)) != hex.EncodeToString(back.sum.Sum(nil)) {
		return fmt.Errorf("what is there is not what was written: %d bytes, or other ones, where %d were", back.bytes, c.bytes)
	}
	return nil
}
