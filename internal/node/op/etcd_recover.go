package op

import "cmp"

// EtcdRecover creates a snapshot from the data directory of a stopped etcd member,
// although too few members are left to serve it. It copies the data, and an etcd without
// other members serves the copy for as long as necessary. Or the snapshot is created from
// the database alone. The original data are not changed. It returns an EtcdRecovered in
// Result.Output.
type EtcdRecover struct {
	// Key identifies the rescue; "" only reads the data.
	Key string `json:"key,omitempty"`
	// Data is the data directory of the member.
	Data string `json:"data"`
	EtcdPrograms
	// EtcdReach is the last entry of the member's data, and Database reports whether this
	// is the reach of the database alone. EtcdRecover is refused (IDEtcdMoved) if this
	// has changed.
	EtcdReach
	Database bool `json:"database,omitempty"`
}

// KindEtcdRecover is the kind of EtcdRecover.
const KindEtcdRecover Kind = "etcd-salvage"

// Kind is KindEtcdRecover.
func (EtcdRecover) Kind() Kind { return KindEtcdRecover }

// Target is the data directory.
func (o EtcdRecover) Target() string { return o.Data }

// An EtcdReach identifies the last entry of a log: the term of the leader that created
// it, and its index. The zero value means no entry.
type EtcdReach struct {
	Term  uint64 `json:"term,omitempty"`
	Index uint64 `json:"index,omitempty"`
}

// Compare compares two logs as etcd does: the later term is further, and within one term
// the later entry.
func (r EtcdReach) Compare(other EtcdReach) int {
	return cmp.Or(cmp.Compare(r.Term, other.Term), cmp.Compare(r.Index, other.Index))
}

// EtcdRecovered describes the data of a member.
type EtcdRecovered struct {
	// Log is the last readable entry of the member's log, zero if etcd could not start
	// with it. Commit is the last entry that the member knows to be on a majority.
	Log    EtcdReach `json:"log,omitzero"`
	Commit uint64    `json:"commit,omitempty"`
	// Database is the last entry in the database: it has all entries up to this one, and
	// all are committed.
	Database EtcdReach `json:"database,omitzero"`
	// Cluster is the ID of the cluster of the log. A restore or a rescue changes it.
	Cluster uint64 `json:"cluster,omitempty"`
	// Learner reports whether the member is a learner.
	Learner bool `json:"learner,omitempty"`
	// Damaged is the position and the reason where reading the log stopped.
	// DatabaseDamaged is the reason why the database cannot be read; without the
	// database, the log cannot be used. From is the file after the damage from which the
	// log continues the database, "" if there is none: with it, the log is read to its
	// end.
	Damaged         string `json:"damaged,omitempty"`
	From            string `json:"from,omitempty"`
	DatabaseDamaged string `json:"databaseDamaged,omitempty"`
	Bytes           int64  `json:"bytes"` // of the data on disk
	// Snapshot is the created snapshot, nil before.
	Snapshot *EtcdSnapshotInfo `json:"snapshot,omitempty"`
}

// ByDatabase reports whether the database reaches further than the readable part of the
// log. etcd does not start with both, but it can be started with the database.
func (is EtcdRecovered) ByDatabase() bool { return is.Database.Compare(is.Log) > 0 }

// Reach returns the last usable entry of the data, zero if there is none.
func (is EtcdRecovered) Reach() EtcdReach {
	switch {
	case is.DatabaseDamaged != "":
		return EtcdReach{}
	case is.ByDatabase():
		return is.Database
	}
	return is.Log
}

// IDEtcdMoved is the reason if the data differ from the data in the plan.
const IDEtcdMoved = "etcd-moved"

// RecoverDir returns the working directory of a rescue. It is in the data directory, on
// the disk for the new data.
func RecoverDir(data, key string) string { return data + "/.rescue-" + key }

// RecoveredSnapshot returns the file of the new snapshot.
func RecoveredSnapshot(data, key string) string { return RecoverDir(data, key) + "/snapshot.db" }
