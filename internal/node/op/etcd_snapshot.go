package op

// EtcdSnapshot saves a verified snapshot of one etcd member in a file of the directory
// EtcdSnapshots on the host. It returns an EtcdSnapshotInfo in Result.Output, also if the
// file exists already.
type EtcdSnapshot struct {
	// EtcdClient has one endpoint: the member's.
	EtcdClient
	// Utility is etcdutl.
	Utility string `json:"utility"`
	// Name is the name of the file: letters, digits, '.', '_' and '-'.
	Name string `json:"name"`
	// Gone removes the file after it was fetched.
	Gone bool `json:"gone,omitempty"`
}

// KindEtcdSnapshot is the kind of EtcdSnapshot.
const KindEtcdSnapshot Kind = "etcd-snapshot"

// Kind is KindEtcdSnapshot.
func (EtcdSnapshot) Kind() Kind { return KindEtcdSnapshot }

// Target is the name of the file.
func (o EtcdSnapshot) Target() string { return o.Name }

// EtcdSnapshots is the directory in which a host keeps snapshots until a manager fetches
// them. A file that is older than a day was left by a killed manager. It is removed with
// the next snapshot, also an automatic one.
const EtcdSnapshots = "/var/lib/slipway/snapshots"

// EtcdSnapshotInfo describes a snapshot.
type EtcdSnapshotInfo struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // of the file, hexadecimal
	// Hash, Revision, Keys and Version are the values that etcdutl reads in the file.
	// Version is the version of the storage: "3.6.0".
	Hash     uint32 `json:"hash"`
	Revision int64  `json:"revision"`
	Keys     int    `json:"keys"`
	Version  string `json:"version,omitempty"`
}

// ReasonEtcdSnapshot is the reason if a snapshot is damaged.
const ReasonEtcdSnapshot = "EtcdSnapshotDamaged"
