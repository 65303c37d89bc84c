package op

// Reset removes what Kubernetes components created at run time and the ledger cannot
// know: containers, mounts below the given paths, network links, namespaces, packet
// filter tables and chains with known names, cgroups. Steps in their own unit that no
// manager controls are stopped first, because their work is reverted.
type Reset struct {
	Units []string `json:"units"` // stopped first, in this order
	// TellFirst lists programs in pods, by the names with which they were started. They
	// get a signal to stop and a few seconds before all pods are killed, so that they
	// release what they hold on the host.
	TellFirst []string `json:"tellFirst,omitempty"`
	Mounts    []string `json:"mounts"` // everything mounted below these is unmounted
	Links     []string `json:"links"`  // names, or prefixes ending in "*"
	// Addresses are removed from every interface: addresses that a pod holds while it
	// runs, and does not release when it is killed.
	Addresses []string `json:"addresses,omitempty"`
	NFTables  []string `json:"nfTables"` // "ip kube-proxy"
	IPTables  []string `json:"ipTables"` // chain prefixes: "KUBE-", "FLANNEL-"
	// CNI is the directory in which CNI stores allocations for containers, also for
	// containers of other software. Allocations of Slipway's pods are released:
	// addresses, network namespaces, and rules with their names.
	CNI string `json:"cni,omitempty"`
	// Sandboxes is a directory with an entry for each of Slipway's pods, named by the ID
	// of its sandbox; Networks lists networks that only these pods use.
	Sandboxes string   `json:"sandboxes,omitempty"`
	Networks  []string `json:"networks,omitempty"`
	Cgroups   []string `json:"cgroups"` // below each hierarchy: "kubepods.slice"
	// Within lists cgroups of units that are started again: their processes are stopped,
	// but the cgroups are kept, because systemd does not check whether they exist.
	Within []string `json:"within,omitempty"`
	// removed with their content if they were absent before Slipway, or emptied if they were empty and Exclusive, according to the ledger
	Paths         []string `json:"paths"`
	KeepUnmanaged bool     `json:"keepUnmanaged"` // refuse when this host has no ledger
	// Gate must respond before anything is stopped, but only while Serves responds:
	// otherwise nothing depends on this host.
	Serves *Wait `json:"serves,omitempty"`
	Gate   *Wait `json:"gate,omitempty"`
}

// KindReset is the kind of Reset.
const KindReset Kind = "reset"

func (Reset) Kind() Kind { return KindReset }

func (Reset) Target() string { return "kubernetes" }

// RevertStep reverts changes of a step on the host, from this operation or an earlier one,
// that no operation of this list still needs: a line was removed from the cluster file.
// Changes by other software since then are kept. It reverts files, blocks, kernel
// parameters and units; the rest waits for RestoreHost.
type RevertStep struct {
	// Step is the ID of the task of the list.
	Step string `json:"step"`
}

// KindRevertStep is the kind of RevertStep.
const KindRevertStep Kind = "put-back"

func (RevertStep) Kind() Kind { return KindRevertStep }

func (o RevertStep) Target() string { return o.Step }

// RestoreHost reverts everything in the ledger, newest first, and removes the ledger, the
// blob store and the helper itself.
type RestoreHost struct {
	// EndLock removes the cluster lock on this host, because the operation continues on
	// the remaining hosts. Otherwise a held lock is left to its holder.
	EndLock bool `json:"endLock,omitempty"`
}

// KindRestoreHost is the kind of RestoreHost.
const KindRestoreHost Kind = "restore"

func (RestoreHost) Kind() Kind { return KindRestoreHost }

func (RestoreHost) Target() string { return "ledger" }
