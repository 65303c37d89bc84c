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
	// Drill says when one of them is tried; nil for never.
	Drill *AutoDrill `json:"drill,omitempty"`
}

// AutoDrillTime is how long a host lets trying one of its snapshots take.
const AutoDrillTime = 20 * time.Minute

// An AutoDrill is how a host tries its snapshots: in an etcd of its own.
type AutoDrill struct {
	// EverySeconds is how far apart they are that are tried, in seconds.
	EverySeconds int64 `json:"everySeconds"`
	// Server is etcd itself.
	Server string `json:"server"`
	// Prefix is what the keys of Secrets begin with.
	Prefix string `json:"prefix"`
	// Encryption are the files that may have the keys by which API servers encrypt.
	Encryption []string `json:"encryption,omitempty"`
}

// An AutoSnapshotOutcome is what came of the latest time.
type AutoSnapshotOutcome struct {
	At time.Time `json:"at"`
	// Failed is why there was none; "" is that there was.
	Failed string `json:"failed,omitempty"`
	// Kept are those that are there, newest first, and Unremoved why some are that were
	// to go; "" is that they are gone.
	Kept      []KeptSnapshot `json:"kept,omitempty"`
	Unremoved string         `json:"unremoved,omitempty"`
	// Copies are what came of copying, target by target.
	Copies []CopyOutcome `json:"copies,omitempty"`
	// Drill is what came of trying one; nil if none is to be tried.
	Drill *DrillOutcome `json:"drill,omitempty"`
}

// A DrillOutcome is what came of trying snapshots: the latest time, and before.
type DrillOutcome struct {
	// Good is when the latest snapshot was begun that was found good; zero is none.
	Good time.Time `json:"good,omitzero"`
	// Failed is why the latest time failed, "" if it did not, and Since since when
	// there is none that was found good, or the latest time failed first after one was.
	Failed string    `json:"failed,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// Begun is since when trying one has not come to an end: it runs, or was cut off.
	Begun time.Time `json:"begun,omitzero"`
	// Path is the snapshot that was tried the latest time, and At when that ended.
	Path    string    `json:"path,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Seconds float64   `json:"seconds,omitempty"`
	// Revision and Keys are what an etcd served of it, of version Etcd, and Secret how
	// a Secret was read.
	Revision int64  `json:"revision,omitempty"`
	Keys     int    `json:"keys,omitempty"`
	Etcd     string `json:"etcd,omitempty"`
	Secret   string `json:"secret,omitempty"`
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
