// Package serverbackup backs up and restores the management server. A backup set is one
// file: a snapshot of etcd, unless that is external, and the files of the directories pki
// and keys. Its header has the size and checksum of every file, and is signed by the key
// of the server.
package serverbackup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"regexp"
	"strings"
	"time"

	"filippo.io/age"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/bounded"
)

const (
	// kind distinguishes the header from the headers of other sets that the same key signs.
	kind = "slipway-server"
	// format is the format of sets; others are refused.
	format = 1
)

const (
	snapshotName = "etcd/snapshot.db"
	pkiDir       = "pki"
	keysDir      = "keys"
)

const (
	// maxFile limits a file of pki and keys, maxFiles their number.
	maxFile  = 1 << 20
	maxFiles = 200
)

// setForm returns the form of the sets of servers.
func setForm() backup.Form { return backup.Form{Header: "server.json", Signature: "server.sig"} }

// A SnapshotInfo describes a snapshot of the etcd database.
type SnapshotInfo struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Revision is the revision of the database, Version the storage version of etcd.
	Revision int64  `json:"revision"`
	Version  string `json:"version,omitempty"`
}

// A Header describes a set. It must not be trusted before its signature is verified: anyone
// who can write a file can write any header.
type Header struct {
	Kind     string    `json:"kind"`
	Format   int       `json:"format"`
	Signed   bool      `json:"signed"`
	ServerID string    `json:"serverID"`
	Created  time.Time `json:"created"` // of the server
	Taken    time.Time `json:"taken"`
	// Program is the version of slipwayd, Kubernetes the version of its libraries.
	Program    string `json:"program"`
	Kubernetes string `json:"kubernetes"`
	// Snapshot is nil in a set of a server with external etcd.
	Snapshot *SnapshotInfo `json:"snapshot,omitempty"`
	// Files are all members except the header and its signature, in order.
	Files []backup.File `json:"files"`
	// Signature is nil in a set without a signature.
	Signature *backup.Signature `json:"-"`

	raw []byte // the header in the set
}

// KeysOnly reports whether the set has no snapshot.
func (h *Header) KeysOnly() bool { return h.Snapshot == nil }

// revision returns the revision of the snapshot, 0 without one.
func (h *Header) revision() int64 {
	if h.Snapshot == nil {
		return 0
	}
	return h.Snapshot.Revision
}

// keyFile matches the files of pki and keys. No other file of these directories is read
// from a data directory or written to one.
var keyFile = regexp.MustCompile(`^(pki|keys)/[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// checkHeader refuses a header that a server would not write, or that lists more than the
// bytes of its file.
func (h *Header) checkHeader(bytes int64) error {
	if h.Kind != kind || h.Format != format {
		return newError(backup.Unknown, "the set has kind %.80q and format %d, but this program reads kind %q and format %d",
			h.Kind, h.Format, kind, format)
	}
	if len(h.Files) > maxFiles+1 {
		return newError(backup.Damaged, "the header of the set lists %d files", len(h.Files))
	}
	seen, snapshots := map[string]bool{}, 0
	for _, f := range h.Files {
		isSnapshot := f.Name == snapshotName
		if seen[f.Name] || f.Bytes < 0 || f.Bytes > bytes || !isSnapshot && (!keyFile.MatchString(f.Name) || f.Bytes > maxFile) {
			return newError(backup.Damaged, "the header of the set lists a file %.120q of %d bytes", f.Name, f.Bytes)
		}
		bytes -= f.Bytes
		seen[f.Name] = true
		if isSnapshot {
			snapshots++
			if s := h.Snapshot; s == nil || f.Bytes != s.Bytes || f.SHA256 != s.SHA256 {
				return newError(backup.Damaged, "the header of the set describes its snapshot in two different ways")
			}
		}
	}
	if (snapshots == 1) != (h.Snapshot != nil) {
		return newError(backup.Damaged, "the header of the set lists %d snapshots", snapshots)
	}
	return nil
}

func newError(r backup.Reason, msg string, args ...any) error {
	return &backup.Error{Reason: r, Message: fmt.Sprintf(msg, args...)}
}

// openSet reads the header of a set with at most the given bytes, and its signature.
func openSet(from io.Reader, bytes int64, ids []age.Identity) (*backup.Reader, *Header, error) {
	r, err := setForm().NewReader(from, ids)
	if err != nil {
		return nil, nil, err
	}
	raw, err := r.ReadHeader()
	if err != nil {
		return nil, nil, err
	}
	h := &Header{}
	if err := json.Unmarshal(raw, h); err != nil {
		return nil, nil, newError(backup.Damaged, "the header of the set cannot be read: %v", err)
	}
	h.raw = raw
	if err := h.checkHeader(bytes); err != nil {
		return nil, nil, err
	}
	if h.Signed {
		h.Signature, err = r.ReadSignature(raw)
	}
	return r, h, err
}

// readSet reads a whole set with at most the given bytes. accept is called with the header
// before anything else is read. open is called for each file in order, and its writer is
// closed after the file. A nil open discards the files.
func readSet(from io.Reader, bytes int64, ids []age.Identity, accept func(*Header) error,
	open func(backup.File) (io.WriteCloser, error),
) (*Header, error) {
	r, h, err := openSet(from, bytes, ids)
	if err != nil {
		return nil, err
	}
	if err := accept(h); err != nil {
		return nil, err
	}
	for _, f := range h.Files {
		if err := readFile(r, f, open); err != nil {
			return nil, err
		}
	}
	return h, r.ReadEnd()
}

func readFile(r *backup.Reader, f backup.File, open func(backup.File) (io.WriteCloser, error)) error {
	if open == nil {
		return r.ReadMember(f, io.Discard)
	}
	w, err := open(f)
	if err != nil {
		return err
	}
	return errors.Join(r.ReadMember(f, w), w.Close())
}

// VerifyStream reads a whole set of unknown size and returns its header. It accepts any
// signer.
func VerifyStream(from io.Reader, ids []age.Identity) (*Header, error) {
	return readSet(from, math.MaxInt64, ids, func(*Header) error { return nil }, nil)
}

// ReadHeader returns the header of a set and its signature. It does not check the rest of
// the set.
func ReadHeader(file string, ids []age.Identity) (*Header, error) {
	f, size, err := openFile(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_, h, err := openSet(f, size, ids)
	return h, explainSet(file, err)
}

// openFile opens a regular file and returns its size.
func openFile(file string) (*os.File, int64, error) {
	f, err := bounded.Open(file)
	if err != nil {
		return nil, 0, fmt.Errorf("opening the backup set: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

const (
	// product and role are in the names of all sets. Several servers on one external etcd
	// have the same id and the same keys, so that their sets are equivalent.
	product = "slipwayd"
	role    = "server"
)

// nameID returns the id of a server in names.
func nameID(serverID string) string {
	sum := sha256.Sum256([]byte(serverID))
	return copies.ClusterID(hex.EncodeToString(sum[:]))
}

// nameFor returns the name of a set, with a tag that only a holder of the key can compute.
func nameFor(h *Header, by *backup.SigningKey) copies.Name {
	n := copies.Name{Cluster: product, ID: nameID(h.ServerID), Host: role, Taken: h.Taken, Revision: h.revision()}
	if by == nil {
		return n
	}
	return n.WithTag(by)
}

// isOwn reports whether a set is of a server, by its name.
func isOwn(n copies.Name, serverID string) bool {
	return n.Cluster == product && n.ID == nameID(serverID) && n.Host == role
}

const sealedSuffix = ".age"

// fileName returns the file name of a set.
func fileName(n copies.Name, encrypted bool) string {
	if encrypted {
		return n.String()
	}
	return strings.TrimSuffix(n.String(), sealedSuffix)
}

// parseFileName parses the file name of a set.
func parseFileName(file string) (n copies.Name, encrypted, ok bool) {
	if path.Ext(file) == sealedSuffix {
		n, ok = copies.ParseName(file)
		return n, true, ok
	}
	n, ok = copies.ParseName(file + sealedSuffix)
	return n, false, ok
}
