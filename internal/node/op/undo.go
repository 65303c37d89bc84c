package op

// Reset takes off the host what Kubernetes components made at run time and
// the ledger cannot know: containers, mounts below the given paths, network
// links, namespaces, packet filter tables and chains by owned names, cgroups.
// Steps that must not be cut, and that their manager has left alone, are ended
// first: what they do is taken back.
type Reset struct {
	Units []string `json:"units"` // stopped first, in this order
	// TellFirst are programs in pods, by the names they were called by, that
	// are told to end and have a few seconds for it before all pods are killed:
	// what they hold on the host, they give up themselves.
	TellFirst []string `json:"tellFirst,omitempty"`
	Mounts    []string `json:"mounts"` // everything mounted below these is unmounted
	Links     []string `json:"links"`  // names, or prefixes ending in "*"
	// Addresses are removed from whatever interface has them: those that a
	// pod holds as long as it runs, and keeps when it is killed.
	Addresses []string `json:"addresses,omitempty"`
	NFTables  []string `json:"nfTables"` // "ip kube-proxy"
	IPTables  []string `json:"ipTables"` // chain prefixes: "KUBE-", "FLANNEL-"
	// CNI is where CNI keeps what it has given to containers, those of
	// others too. What belongs to our pods is taken back: addresses, network
	// namespaces, and rules that bear their names.
	CNI string `json:"cni,omitempty"`
	// Sandboxes is a directory that has an entry for each of our pods, named
	// by its sandbox's id; Networks are networks that only they are in.
	Sandboxes string   `json:"sandboxes,omitempty"`
	Networks  []string `json:"networks,omitempty"`
	Cgroups   []string `json:"cgroups"` // below each hierarchy: "kubepods.slice"
	// Within are cgroups of units that are started again: what runs in them ends,
	// and they stay, for systemd does not look whether they are there.
	Within        []string `json:"within,omitempty"`
	Paths         []string `json:"paths"`         // removed with their content if they were absent before us, or emptied if they were empty and Exclusive, as the ledger says
	KeepUnmanaged bool     `json:"keepUnmanaged"` // refuse when this host has no ledger
	// Gate is what is waited for before anything ends, while Serves answers: what
	// does not serve is missed by nobody.
	Serves *Wait `json:"serves,omitempty"`
	Gate   *Wait `json:"gate,omitempty"`
}

// PutBack puts back what a step has changed on the host, in this operation or
// an earlier one, and no operation of the list that this one is in is about
// any more: a line that is gone from the cluster file. What others have
// changed since is left to them. Files, blocks, kernel parameters and units
// are put back; the rest waits for Restore.
type PutBack struct {
	// Step is the id of the task that the list belongs to.
	Step string `json:"step"`
}

// Restore puts everything in the ledger back as it was, newest first, and
// removes the ledger, the blob store and the helper itself.
type Restore struct {
	// EndLock ends the cluster lock on this host: the operation goes on, on
	// hosts that stay. Else a lock that is held is left to its holder.
	EndLock bool `json:"endLock,omitempty"`
}
