package op

// EtcdRestore is a part of giving the members of an etcd the data of a snapshot.
// All parts of one restore have the same Key: what was done for it is not done
// again by the same operation, however often that is gone on with.
type EtcdRestore struct {
	Do RestoreStep `json:"do"`
	// Key names the restore: the snapshot and the members that it is for.
	Key string `json:"key"`
	// Snapshot, Utility (etcdutl) and what follows are for RestorePrepare. The
	// snapshot is in the file From of the host instead, if there is one; what it
	// is in goes when the data have been made of it.
	Snapshot Blob   `json:"snapshot,omitzero"`
	From     string `json:"from,omitempty"`
	Utility  string `json:"utility,omitempty"`
	// Name and PeerURL are the member's, Cluster all of them: "name=url,…".
	Name    string `json:"name,omitempty"`
	PeerURL string `json:"peerURL,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	// Bump is how far the revision goes beyond the snapshot's, so that nobody
	// who has seen a later one takes what is older for newer.
	Bump uint64 `json:"bump,omitempty"`
	// Data is the member's data directory, for RestorePrepare, RestoreSwap and
	// RestoreAside.
	Data string `json:"data,omitempty"`
	// Units are stopped or started, in order; those that the host has not are
	// passed over.
	Units []string `json:"units,omitempty"`
	// Programs in pods are ended when the units are stopped; Cgroups are those
	// of pods.
	Programs []string `json:"programs,omitempty"`
	Cgroups  []string `json:"cgroups,omitempty"`
}

// FirstBump is what Bump is at least: further than any cluster has come since. It is what
// etcd's own documentation advises.
const FirstBump = 1_000_000_000

// A RestoreStep is a part of a restore.
type RestoreStep string

// The steps, in order.
const (
	// RestorePrepare makes the new data beside the old ones, which stay in use.
	RestorePrepare RestoreStep = "prepare"
	// RestoreStop ends all that has the old data, in files or in memory.
	RestoreStop RestoreStep = "stop"
	// RestoreSwap moves the old data aside and the new ones into their place.
	RestoreSwap RestoreStep = "swap"
	// RestoreAside moves the data aside, and nothing takes their place.
	RestoreAside RestoreStep = "aside"
	// RestoreStart starts units. RestoreRefresh stops units, ends programs, and
	// starts the units again, so that nobody goes by what was.
	RestoreStart   RestoreStep = "start"
	RestoreRefresh RestoreStep = "refresh"
)

// KindEtcdRestore is the kind of EtcdRestore.
const KindEtcdRestore Kind = "etcd-restore"

// Kind is KindEtcdRestore.
func (EtcdRestore) Kind() Kind { return KindEtcdRestore }

// Target is the step.
func (o EtcdRestore) Target() string { return string(o.Do) }
