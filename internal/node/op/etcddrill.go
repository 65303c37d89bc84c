package op

// EtcdDrill restores a snapshot into an etcd of its own, that nobody but the helper
// can ask and that is gone afterwards, and answers with an EtcdDrilled in
// Result.Output what that etcd serves. The host's own etcd is not touched.
type EtcdDrill struct {
	// Name is the drill's: letters, digits, '.', '_' and '-'.
	Name     string `json:"name"`
	Snapshot Blob   `json:"snapshot"`
	EtcdPrograms
	// Prefix is what the key begins with whose value is answered.
	Prefix string `json:"prefix,omitempty"`
}

// EtcdPrograms are etcd itself, etcdctl and etcdutl.
type EtcdPrograms struct {
	Server  string `json:"server"`
	Program string `json:"program"`
	Utility string `json:"utility"`
}

// EtcdDrilled is what came of a drill.
type EtcdDrilled struct {
	// Snapshot is what etcdutl reads in the snapshot on the host.
	Snapshot EtcdSnapshotInfo `json:"snapshot"`
	// Revision and Keys are what the etcd served that was made from it, of
	// Version.
	Revision int64  `json:"revision"`
	Keys     int    `json:"keys"`
	Version  string `json:"version"`
	// Key is the first that begins with the prefix, "" if there is none.
	Key   string `json:"key,omitempty"`
	Value []byte `json:"value,omitempty"`
}

// EtcdDrills is where a host keeps the data of drills while they last.
const EtcdDrills = "/var/lib/slipway/drills"

// Reasons why an etcd of its own does not come to serve.
const (
	ReasonScratchMemory = "MemoryShort"
	ReasonScratchFailed = "EtcdNotServing"
)

// KindEtcdDrill is the kind of EtcdDrill.
const KindEtcdDrill Kind = "etcd-drill"

// Kind is KindEtcdDrill.
func (EtcdDrill) Kind() Kind { return KindEtcdDrill }

// Target is the drill's name.
func (o EtcdDrill) Target() string { return o.Name }
