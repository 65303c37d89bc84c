package op

// EtcdRestoreTest restores a snapshot into a temporary etcd, which only the helper can reach
// and which is removed afterwards. It returns an EtcdRestoreTested in Result.Output: what this
// etcd serves. The host's own etcd is not changed.
type EtcdRestoreTest struct {
	// Name identifies the restore test: letters, digits, '.', '_' and '-'.
	Name     string `json:"name"`
	Snapshot Blob   `json:"snapshot"`
	EtcdPrograms
	// Prefix is the prefix of the key whose value is returned.
	Prefix string `json:"prefix,omitempty"`
}

// KindEtcdRestoreTest is the kind of EtcdRestoreTest.
const KindEtcdRestoreTest Kind = "etcd-drill"

// Kind is KindEtcdRestoreTest.
func (EtcdRestoreTest) Kind() Kind { return KindEtcdRestoreTest }

// Target is the name of the restore test.
func (o EtcdRestoreTest) Target() string { return o.Name }

// EtcdPrograms has the paths of etcd, etcdctl and etcdutl.
type EtcdPrograms struct {
	Server  string `json:"server"`
	Program string `json:"program"`
	Utility string `json:"utility"`
}

// EtcdRestoreTested is the result of a restore test.
type EtcdRestoreTested struct {
	// Snapshot is the output of etcdutl for the snapshot on the host.
	Snapshot EtcdSnapshotInfo `json:"snapshot"`
	// Revision and Keys are the values that the restored etcd served, of version Version.
	Revision int64  `json:"revision"`
	Keys     int    `json:"keys"`
	Version  string `json:"version"`
	// Key is the first key with the prefix, "" if there is none.
	Key   string `json:"key,omitempty"`
	Value []byte `json:"value,omitempty"`
}

// EtcdRestoreTests is the directory for the data of restore tests while they run.
const EtcdRestoreTests = "/var/lib/slipway/drills"

// Reasons why a temporary etcd does not serve.
const (
	ReasonScratchMemory = "MemoryShort"
	ReasonScratchFailed = "EtcdNotServing"
)
