package op

import "time"

// An AutoSnapshot is how a host takes snapshots of its own member of etcd, with
// nobody connected to it.
type AutoSnapshot struct {
	Cluster string `json:"cluster"`
	// EtcdClient has one endpoint: the host's own member's. Utility is etcdutl.
	EtcdClient
	Utility string `json:"utility"`
	// Keep is how many of its own snapshots the host keeps.
	Keep int `json:"keep"`
	// Copies says where each of them is copied to; nil for nowhere.
	Copies *AutoCopies `json:"copies,omitempty"`
}

// An AutoSnapshotOutcome is what came of the latest time.
type AutoSnapshotOutcome struct {
	At time.Time `json:"at"`
	// Failed is why there was none; "" is that there was.
	Failed string `json:"failed,omitempty"`
	// Kept are those that are there, newest first.
	Kept []KeptSnapshot `json:"kept,omitempty"`
	// Copies are what came of copying, target by target.
	Copies []CopyOutcome `json:"copies,omitempty"`
}

// A KeptSnapshot is one of them, as it was verified after it was written.
type KeptSnapshot struct {
	EtcdSnapshotInfo
	Taken time.Time `json:"taken"`
	// Etcd is the version of the member that it is of.
	Etcd string `json:"etcd"`
}

const (
	// AutoSnapshots is where a host keeps them. They go with the cluster.
	AutoSnapshots = "/var/lib/slipway/backups"
	// AutoSnapshotFile is where it keeps what came of it.
	AutoSnapshotFile = "/var/lib/slipway/backups.json"
)
