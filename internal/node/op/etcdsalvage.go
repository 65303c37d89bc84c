package op

import "cmp"

// EtcdSalvage makes a snapshot of what a stopped member of etcd has in its data
// directory, though too few members are left to serve it: a copy of the data is
// made, and an etcd that has no other members any more serves that just long
// enough; or the database alone is what the snapshot is made of. The data themselves
// stay as they are. It answers with an EtcdSalvaged in Result.Output.
type EtcdSalvage struct {
	// Key names the rescue; "" only looks at the data.
	Key string `json:"key,omitempty"`
	// Data is the member's data directory.
	Data string `json:"data"`
	EtcdPrograms
	// EtcdReach is how far the member's data go, and Database whether these are those
	// of its database alone; it is refused (IDEtcdMoved) if that is not so any more.
	EtcdReach
	Database bool `json:"database,omitempty"`
}

// An EtcdReach is the last entry of a log that something goes up to: the term of
// the leader that made it, and its number. The zero one is nothing.
type EtcdReach struct {
	Term  uint64 `json:"term,omitempty"`
	Index uint64 `json:"index,omitempty"`
}

// Compare is how etcd itself compares the logs of two members: the later term goes
// further, and of one term the later entry.
func (r EtcdReach) Compare(other EtcdReach) int {
	return cmp.Or(cmp.Compare(r.Term, other.Term), cmp.Compare(r.Index, other.Index))
}

// EtcdSalvaged is what a member has.
type EtcdSalvaged struct {
	// Log is how far the member's log goes, zero if etcd could not begin with what can
	// be read of it; Commit is the last entry that it knows a majority to have.
	Log    EtcdReach `json:"log,omitzero"`
	Commit uint64    `json:"commit,omitempty"`
	// Database is how far the database goes: all entries up to there are in it, and
	// all are agreed upon.
	Database EtcdReach `json:"database,omitzero"`
	// Cluster is the id of the cluster whose log it is: another one after a restore
	// or a rescue.
	Cluster uint64 `json:"cluster,omitempty"`
	// Learner says that the member has no vote.
	Learner bool `json:"learner,omitempty"`
	// Damaged is where the log could not be read on, and why; DatabaseDamaged is why
	// the database cannot be read: without it, the log is nothing to go on with.
	// From is the file behind the damage with which the log goes on from the database,
	// "" if there is none: with it, the log is read to its end.
	Damaged         string `json:"damaged,omitempty"`
	From            string `json:"from,omitempty"`
	DatabaseDamaged string `json:"databaseDamaged,omitempty"`
	Bytes           int64  `json:"bytes"` // of the data on disk
	// Snapshot is the one that was made, nil before.
	Snapshot *EtcdSnapshotInfo `json:"snapshot,omitempty"`
}

// ByDatabase says that the database goes further than what can be read of the log:
// etcd does not start with the two, but with the database it can be made to.
func (is EtcdSalvaged) ByDatabase() bool { return is.Database.Compare(is.Log) > 0 }

// Reach is how far the data go that can be gone on with, zero if there are none.
func (is EtcdSalvaged) Reach() EtcdReach {
	switch {
	case is.DatabaseDamaged != "":
		return EtcdReach{}
	case is.ByDatabase():
		return is.Database
	}
	return is.Log
}

// IDEtcdMoved is data that are not what was planned with.
const IDEtcdMoved = "etcd-moved"

// SalvageDir is where a rescue works, within the data directory: on the disk on
// which the data shall be.
func SalvageDir(data, key string) string { return data + "/.rescue-" + key }

// SalvagedSnapshot is the file of the snapshot that is made.
func SalvagedSnapshot(data, key string) string { return SalvageDir(data, key) + "/snapshot.db" }

// KindEtcdSalvage is the kind of EtcdSalvage.
const KindEtcdSalvage Kind = "etcd-salvage"

// Kind is KindEtcdSalvage.
func (EtcdSalvage) Kind() Kind { return KindEtcdSalvage }

// Target is the data directory.
func (o EtcdSalvage) Target() string { return o.Data }
