// Package lock is the part of the cluster lock on one host: the holder of the cluster,
// its fencing number, and its last heartbeat.
package lock

// FileName, FenceName and ManagerName are the lock files below the state directory.
const (
	FileName    = "lock.json"
	FenceName   = "fence"
	ManagerName = "manager.json"
)

// StaleSeconds is how long a holder can be silent before others may take over.
const StaleSeconds = 60

// Lock describes the holder of a cluster.
type Lock struct {
	Operation string `json:"operation"`
	Manager   string `json:"manager"` // ID of the Slipway installation that holds it
	Fence     uint64 `json:"fence"`
	// By describes the holder and the start time, for people.
	By string `json:"by,omitempty"`
	// Process distinguishes the holder from others with the same manager ID.
	Process string `json:"process,omitempty"`
	// Server is the address of the management server that holds it, "" for the command line.
	Server string `json:"server,omitempty"`
	// Over, when the lock is taken, names a process of the same manager that has ended:
	// its lock is free at once. A stored lock does not have it.
	Over string `json:"over,omitempty"`
}

// A Manager manages a cluster also between operations, since a management server has held the lock.
type Manager struct {
	ID     string `json:"id"`
	Server string `json:"server,omitempty"` // its address, "" for the command line
	// Fence is the fencing number of the lock with which it began. Of several, the one with the highest number counts.
	Fence uint64 `json:"fence"`
}

// FenceError reports a fence that cannot be read: it is unknown which managers were
// displaced.
type FenceError struct {
	Path string
	Err  error
}

func (e *FenceError) Error() string {
	return e.Path + ", which excludes earlier managers, cannot be read (" + e.Err.Error() +
		"); if no other manager works on the cluster, use --break-lock to write it again"
}

func (e *FenceError) Unwrap() error { return e.Err }

// State is the state of the lock on a host.
type State struct {
	Held    bool   `json:"held"`
	Holder  Lock   `json:"holder"`
	Highest uint64 `json:"highest"` // highest fencing number seen
	// Manager manages the cluster also between operations; empty if no management server has held the lock.
	Manager Manager `json:"manager,omitzero"`
	// AgeSeconds is the time since the last heartbeat by the monotonic clock of the host;
	// a reboot makes the lock stale.
	AgeSeconds float64 `json:"ageSeconds"`
	// Stale reports whether there was no heartbeat for 60 s or a new boot, and no unit of
	// the holder's operation is running.
	Stale bool `json:"stale"`
	// Units lists the running transient units of the holder.
	Units []string `json:"units,omitempty"`
}
