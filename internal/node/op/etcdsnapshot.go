package op

// EtcdSnapshot has a snapshot of one member of etcd on the host, verified, in a
// file of the directory for these. It answers with an EtcdSnapshotInfo in
// Result.Output, also when the file is there already.
type EtcdSnapshot struct {
	// EtcdClient has one endpoint: the member's.
	EtcdClient
	// Utility is etcdutl.
	Utility string `json:"utility"`
	// Name is the file's: letters, digits, '.', '_' and '-'.
	Name string `json:"name"`
	// Gone has the file not be there: it was fetched.
	Gone bool `json:"gone,omitempty"`
}

// EtcdSnapshots is where a host keeps snapshots as long as nobody has fetched
// them. What is older than a day was left by a manager that was killed, and goes
// with the next, or when the host takes one by itself.
const EtcdSnapshots = "/var/lib/slipway/snapshots"

// EtcdSnapshotInfo is what a snapshot is.
type EtcdSnapshotInfo struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // of the file, hexadecimal
	// Hash, Revision, Keys and Version are as etcdutl reads them in the file.
	// Version is that of the storage: "3.6.0".
	Hash     uint32 `json:"hash"`
	Revision int64  `json:"revision"`
	Keys     int    `json:"keys"`
	Version  string `json:"version,omitempty"`
}

// KindEtcdSnapshot is the kind of EtcdSnapshot.
const KindEtcdSnapshot Kind = "etcd-snapshot"

// ReasonEtcdSnapshot is a snapshot that is not whole.
const ReasonEtcdSnapshot = "EtcdSnapshotDamaged"

// Kind is KindEtcdSnapshot.
func (EtcdSnapshot) Kind() Kind { return KindEtcdSnapshot }

// Target is the file's name.
func (o EtcdSnapshot) Target() string { return o.Name }
