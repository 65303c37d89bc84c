package op

// EtcdSalvage makes a snapshot of what a stopped member of etcd has in its data
// directory, though too few members are left to serve it: a copy of the data is
// made, and an etcd that has no other members any more serves that just long
// enough. The data themselves stay as they are. It answers with an EtcdSalvaged in
// Result.Output.
type EtcdSalvage struct {
	// Key names the rescue; "" only looks at the data.
	Key string `json:"key,omitempty"`
	// Data is the member's data directory.
	Data string `json:"data"`
	EtcdPrograms
	// Term and Index are how far the member's log goes; it is refused
	// (IDEtcdMoved) if that is not so any more.
	Term  uint64 `json:"term,omitempty"`
	Index uint64 `json:"index,omitempty"`
}

// EtcdSalvaged is what a member has.
type EtcdSalvaged struct {
	// Term and Index are those of the last entry in the member's log, Commit the
	// last that it knows a majority to have. All are 0 if there are no data.
	Term   uint64 `json:"term"`
	Index  uint64 `json:"index"`
	Commit uint64 `json:"commit"`
	// Cluster is the id of the cluster whose log it is: another one after a restore
	// or a rescue.
	Cluster uint64 `json:"cluster,omitempty"`
	// Damaged is why the log could not be read to its end.
	Damaged string `json:"damaged,omitempty"`
	Bytes   int64  `json:"bytes"` // of the data on disk
	// Snapshot is the one that was made, nil before.
	Snapshot *EtcdSnapshotInfo `json:"snapshot,omitempty"`
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
