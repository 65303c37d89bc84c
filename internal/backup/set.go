// Package backup is backup sets: one file that holds a snapshot of a cluster's
// etcd, unless that is others', and what else it takes to have the cluster again:
// the keys of its authorities, its encryption configuration, its description. A set is a tar,
// encrypted to the keys of its recipients if there are any. Its first member
// says what it is, and how long and what every other is, so that one that was
// cut off or has changed is told from one that is whole.
package backup

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"
)

// The formats of sets; others are not read. A set of keys alone, without a snapshot,
// has its own format, and so have signed sets: a program that does not know them says
// so, and does not take them for damaged.
const (
	format         = 1
	keysOnly       = 2
	signed         = 3
	signedKeysOnly = 4
)

// The members of a set besides the files of hosts, which are below FileDir by
// their paths.
const (
	manifestName  = "set.json"
	signatureName = "set.sig"
	SnapshotName  = "snapshot.db"
	ClusterName   = "cluster.yaml"
	FileDir       = "files"
)

const (
	// maxManifest and maxFile bound what is read into memory, in bytes, and
	// maxFiles how many files there are.
	maxManifest = 4 << 20
	maxFile     = 4 << 20
	maxFiles    = 200
)

// A Set says what a set is.
type Set struct {
	Format  int       `json:"format"`
	Cluster string    `json:"cluster"`
	Taken   time.Time `json:"taken"`
	// Kubernetes and Etcd are versions of what ran.
	Kubernetes string `json:"kubernetes"`
	Etcd       string `json:"etcd"`
	// EtcdType is stacked, managed or external, ClusterID etcd's own name for itself, and
	// Member whose the snapshot is.
	EtcdType  string `json:"etcdType"`
	ClusterID string `json:"clusterID,omitempty"`
	Member    string `json:"member"`
	// Authority is the cluster's, as the SHA-256 of its certificate: it tells
	// clusters of one name apart.
	Authority string   `json:"authority"`
	Snapshot  Snapshot `json:"snapshot"`
	// Files are all members but this one and its signature, in order.
	Files []File `json:"files"`
	// Signature is the signature that was read with the set; nil is that it has none.
	// Nothing of a set can be trusted before it was verified: whoever can write where
	// a set lies can write any set.
	Signature *Signature `json:"-"`
}

// KeysOnly reports whether the set has no snapshot, because etcd is external.
func (s *Set) KeysOnly() bool { return s.Format == keysOnly || s.Format == signedKeysOnly }

// isSigned reports whether a signature follows the head.
func (s *Set) isSigned() bool { return s.Format == signed || s.Format == signedKeysOnly }

// A Snapshot is what a snapshot of etcd is. Hash, Revision and Version are what
// etcdutl reads in it, Keys how many there are at its revision.
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

// A Content is a small file that goes into a set, or came out of one.
type Content struct {
	Name string
	Data []byte
}

// HostFile is the name in a set of a file of hosts.
func HostFile(at string) string { return path.Join(FileDir, at) }

// A Reason is why a file is no set that can be used.
type Reason string

// The reasons.
const (
	Damaged   Reason = "backup-damaged"   // cut off, or not what was written
	Encrypted Reason = "backup-encrypted" // and there is no key that opens it
	Unknown   Reason = "backup-unknown"   // no set, or of another format
	Exists    Reason = "backup-exists"    // there is one at its place
)

// Unverified is that a set has no signature, or not one by a trusted key.
const Unverified Reason = "backup-unverified"

// An Error is a file that is no set that can be used.
type Error struct {
	Reason  Reason
	Message string
}

func (e *Error) Error() string { return e.Message }

func broken(r Reason, msg string, args ...any) error {
	return &Error{Reason: r, Message: fmt.Sprintf(msg, args...)}
}

// Place is the name of the file of a set, so that sets sort by their age.
func Place(cluster string, taken time.Time, encrypted bool) string {
	name := cluster + "-" + taken.UTC().Format("20060102-150405") + ".tar"
	if encrypted {
		name += ".age"
	}
	return name
}

var places = regexp.MustCompile(`^(.+)-([0-9]{8}-[0-9]{6})\.tar(\.age)?$`)

// Placed says of which cluster the set in a file of this name is, and when it was
// taken; false is no set's name.
func Placed(file string) (cluster string, taken time.Time, encrypted, ok bool) {
	m := places.FindStringSubmatch(file)
	if m == nil {
		return "", time.Time{}, false, false
	}
	taken, err := time.Parse("20060102-150405", m[2])
	return m[1], taken, m[3] != "", err == nil
}

// local says that a member's name leads to no place outside of the set.
func local(name string) bool {
	return name != "" && path.Clean(name) == name && !path.IsAbs(name) && name != ".." && !strings.HasPrefix(name, "../") && !strings.ContainsRune(name, 0)
}
