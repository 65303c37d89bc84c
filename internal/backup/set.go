// Package backup reads and writes backup sets. A set is one file with everything that is
// needed to restore a cluster: a snapshot of its etcd, unless that is external, the keys of
// its CAs, its encryption configuration and its description. It is a tar file, encrypted
// for its recipients if there are any. Its first member is a header with the size and the
// checksum of every other member, so that an incomplete or changed set is detected.
package backup

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"
)

// The formats of sets; other formats are refused. Sets without a snapshot and signed sets
// have separate formats, so that an older program reports an unknown format and not a
// damaged set.
const (
	format         = 1
	keysOnly       = 2
	signed         = 3
	signedKeysOnly = 4
)

// The members of a set besides the files of hosts, which have their paths below FileDir.
const (
	manifestName  = "set.json"
	signatureName = "set.sig"
	SnapshotName  = "snapshot.db"
	ClusterName   = "cluster.yaml"
	FileDir       = "files"
)

const (
	// maxManifest and maxFile limit the bytes that are read into memory. maxFiles limits
	// the number of files.
	maxManifest = 4 << 20
	maxFile     = 4 << 20
	maxFiles    = 200
)

// A Set is the header of a set.
type Set struct {
	Format  int       `json:"format"`
	Cluster string    `json:"cluster"`
	Taken   time.Time `json:"taken"`
	// Kubernetes and Etcd are the versions of the cluster.
	Kubernetes string `json:"kubernetes"`
	Etcd       string `json:"etcd"`
	// EtcdType is stacked, managed or external, ClusterID is etcd's cluster id, and Member
	// is the member that the snapshot is from.
	EtcdType  string `json:"etcdType"`
	ClusterID string `json:"clusterID,omitempty"`
	Member    string `json:"member"`
	// Authority is the SHA-256 of the cluster CA's certificate. It distinguishes clusters
	// with the same name.
	Authority string   `json:"authority"`
	Snapshot  Snapshot `json:"snapshot"`
	// Files are all members except the header and its signature, in order.
	Files []File `json:"files"`
	// Signature is the signature of the set, nil if it has none. A set must not be trusted
	// before its signature is verified: anyone who can write to its directory can write
	// any set.
	Signature *Signature `json:"-"`
}

// KeysOnly reports whether the set has no snapshot, because etcd is external.
func (s *Set) KeysOnly() bool { return s.Format == keysOnly || s.Format == signedKeysOnly }

// isSigned reports whether a signature follows the header.
func (s *Set) isSigned() bool { return s.Format == signed || s.Format == signedKeysOnly }

// A Snapshot describes an etcd snapshot. Hash, Revision and Version are as etcdutl reports
// them, Keys is the number of keys at its revision.
type Snapshot struct {
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`
	Hash     uint32 `json:"hash"`
	Revision int64  `json:"revision"`
	Keys     int    `json:"keys"`
	Version  string `json:"version,omitempty"`
}

// A File is a member of a set.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// A Content is a small file of a set.
type Content struct {
	Name string
	Data []byte
}

// HostFile returns the name in a set for a file of hosts.
func HostFile(at string) string { return path.Join(FileDir, at) }

// A Reason is the reason why a set cannot be used.
type Reason string

// The reasons.
const (
	Damaged   Reason = "backup-damaged"   // incomplete or changed
	Encrypted Reason = "backup-encrypted" // without a key that decrypts it
	Unknown   Reason = "backup-unknown"   // not a set, or an unknown format
	Exists    Reason = "backup-exists"    // the file exists already
)

// Unverified is the reason if a set has no signature of a trusted key.
const Unverified Reason = "backup-unverified"

// An Error is returned for a set that cannot be used.
type Error struct {
	Reason  Reason
	Message string
}

func (e *Error) Error() string { return e.Message }

func newError(r Reason, msg string, args ...any) error {
	return &Error{Reason: r, Message: fmt.Sprintf(msg, args...)}
}

// FileName returns the file name of a set. File names of a cluster sort by age.
func FileName(cluster string, taken time.Time, encrypted bool) string {
	name := cluster + "-" + taken.UTC().Format("20060102-150405") + ".tar"
	if encrypted {
		name += ".age"
	}
	return name
}

var places = regexp.MustCompile(`^(.+)-([0-9]{8}-[0-9]{6})\.tar(\.age)?$`)

// ParseFileName parses the file name of a set. ok reports whether it is one.
func ParseFileName(file string) (cluster string, taken time.Time, encrypted, ok bool) {
	m := places.FindStringSubmatch(file)
	if m == nil {
		return "", time.Time{}, false, false
	}
	taken, err := time.Parse("20060102-150405", m[2])
	return m[1], taken, m[3] != "", err == nil
}

// isLocalName reports whether a member's name is a relative path that stays within the set.
func isLocalName(name string) bool {
	return name != "" && path.Clean(name) == name && !path.IsAbs(name) && name != ".." && !strings.HasPrefix(name, "../") &&
		!strings.ContainsRune(name, 0)
}
