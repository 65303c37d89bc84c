package op

// EtcdRestore is one step of a restore of etcd members from a snapshot. All steps of one
// restore have the same Key: the same operation does not repeat a completed step, however
// often it is resumed.
type EtcdRestore struct {
	Do RestoreStep `json:"do"`
	// Key identifies the restore: the snapshot and the members.
	Key string `json:"key"`
	// Snapshot, Utility (etcdutl) and the following fields are for RestorePrepare. If
	// From is set, the snapshot is in this file on the host; its directory is removed
	// when the data have been created from it.
	Snapshot Blob   `json:"snapshot,omitzero"`
	From     string `json:"from,omitempty"`
	Utility  string `json:"utility,omitempty"`
	// Name and PeerURL identify the member. Cluster lists all members: "name=url,…".
	Name    string `json:"name,omitempty"`
	PeerURL string `json:"peerURL,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	// Bump is added to the revision of the snapshot, so that a client that has seen a
	// later revision does not take older data for newer data.
	Bump uint64 `json:"bump,omitempty"`
	// Data is the data directory of the member, for RestorePrepare, RestoreSwap and
	// RestoreAside.
	Data string `json:"data,omitempty"`
	// Units are stopped or started, in order; units that the host does not have are
	// skipped.
	Units []string `json:"units,omitempty"`
	// Programs in pods are stopped after the units; Cgroups are the cgroups of pods.
	Programs []string `json:"programs,omitempty"`
	Cgroups  []string `json:"cgroups,omitempty"`
}

// KindEtcdRestore is the kind of EtcdRestore.
const KindEtcdRestore Kind = "etcd-restore"

// Kind is KindEtcdRestore.
func (EtcdRestore) Kind() Kind { return KindEtcdRestore }

// Target is the step.
func (o EtcdRestore) Target() string { return string(o.Do) }

// FirstBump is the minimum of Bump: more revisions than any cluster can have added since.
// The etcd documentation recommends it.
const FirstBump = 1_000_000_000

// A RestoreStep is a part of a restore.
type RestoreStep string

// The steps, in order.
const (
	// RestorePrepare creates the new data next to the old data, which remain in use.
	RestorePrepare RestoreStep = "prepare"
	// RestoreStop stops everything that has the old data, in files or in memory.
	RestoreStop RestoreStep = "stop"
	// RestoreSwap moves the old data aside, and the new data into their place.
	RestoreSwap RestoreStep = "swap"
	// RestoreAside moves the data aside without a replacement.
	RestoreAside RestoreStep = "aside"
	// RestoreStart starts units. RestoreRefresh stops units, stops programs, and starts
	// the units again, so that none of them uses old data.
	RestoreStart   RestoreStep = "start"
	RestoreRefresh RestoreStep = "refresh"
)
