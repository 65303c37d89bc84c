package op

import "time"

// An AutoSnapshot configures how a host takes snapshots of its etcd member without a connection
// to a manager.
type AutoSnapshot struct {
	Cluster string `json:"cluster"`
	// EtcdClient has one endpoint: the etcd member on this host. Utility is etcdutl.
	EtcdClient
	Utility string `json:"utility"`
	// Keep is how many of its own snapshots the host keeps.
	Keep int `json:"keep"`
	// Copies configures the copies of each snapshot; nil means none.
	Copies *AutoCopies `json:"copies,omitempty"`
	// Drill configures the restore tests; nil means none.
	Drill *AutoDrill `json:"drill,omitempty"`
}

// AutoDrillTime limits the time of a restore test on a host.
const AutoDrillTime = 20 * time.Minute

// An AutoDrill configures restore tests: the host restores a snapshot into a temporary
// etcd.
type AutoDrill struct {
	// EverySeconds is the interval of restore tests, in seconds.
	EverySeconds int64 `json:"everySeconds"`
	// Server is the etcd program.
	Server string `json:"server"`
	// Prefix is the prefix of the etcd keys of Secrets.
	Prefix string `json:"prefix"`
	// Encryption lists the files that can have the encryption keys of API servers.
	Encryption []string `json:"encryption,omitempty"`
}

// An AutoSnapshotOutcome is the result of the latest run.
type AutoSnapshotOutcome struct {
	At time.Time `json:"at"`
	// Failed is the reason why no snapshot was taken; "" means success.
	Failed string `json:"failed,omitempty"`
	// Kept lists the existing snapshots, newest first. Unremoved is the reason why old
	// snapshots could not be removed; "" means that they were removed.
	Kept      []KeptSnapshot `json:"kept,omitempty"`
	Unremoved string         `json:"unremoved,omitempty"`
	// Copies lists the results of copying, one for each target.
	Copies []CopyOutcome `json:"copies,omitempty"`
	// Drill is the result of restore tests; nil if none are configured.
	Drill *DrillOutcome `json:"drill,omitempty"`
}

// A DrillOutcome is the result of restore tests: the latest one and earlier ones.
type DrillOutcome struct {
	// Good is the start time of the latest snapshot that passed a restore test; zero
	// means none.
	Good time.Time `json:"good,omitzero"`
	// Failed is the reason why the latest restore test failed, "" if it passed. Since is
	// the time since when no test has passed, or the time of the first failure after a
	// test that passed.
	Failed string    `json:"failed,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// Begun is the start time of a restore test that has not finished: it is running, or
	// was interrupted.
	Begun time.Time `json:"begun,omitzero"`
	// Path is the snapshot of the latest restore test, and At the time when the test
	// ended.
	Path    string    `json:"path,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Seconds float64   `json:"seconds,omitempty"`
	// Revision and Keys are the values that an etcd of version Etcd served from it.
	// Secret describes how a Secret was read.
	Revision int64  `json:"revision,omitempty"`
	Keys     int    `json:"keys,omitempty"`
	Etcd     string `json:"etcd,omitempty"`
	Secret   string `json:"secret,omitempty"`
}

// A KeptSnapshot is an existing snapshot, as it was verified after it was written.
type KeptSnapshot struct {
	EtcdSnapshotInfo
	Taken time.Time `json:"taken"`
	// Etcd is the version of the member from which it was taken.
	Etcd string `json:"etcd"`
}

const (
	// AutoSnapshots is the directory in which a host keeps them. It is removed with the
	// cluster.
	AutoSnapshots = "/var/lib/slipway/backups"
	// AutoSnapshotFile is the file for the results.
	AutoSnapshotFile = "/var/lib/slipway/backups.json"
)
