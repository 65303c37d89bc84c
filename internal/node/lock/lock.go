// Package lock is the part of the cluster lock that one host keeps: who holds
// the cluster, with which fencing number, and when it was last heard of.
package lock

// FileName and FenceName are the lock's files below the state directory.
const (
	FileName  = "lock.json"
	FenceName = "fence"
)

// StaleSeconds is how long a holder may be silent before others may take over.
const StaleSeconds = 60

// Lock says who holds a cluster.
type Lock struct {
	Operation string `json:"operation"`
	Manager   string `json:"manager"` // which installation of Slipway holds it
	Fence     uint64 `json:"fence"`
	// By says who that is, and since when, for people.
	By string `json:"by,omitempty"`
	// Process tells the holder from others with the same manager id.
	Process string `json:"process,omitempty"`
	// Over, when the lock is taken, is a process of the same manager that has ended:
	// its lock is free at once. The lock that is kept has none.
	Over string `json:"over,omitempty"`
}

// FenceError is a fence that cannot be read: nobody knows who was displaced.
type FenceError struct {
	Path string
	Err  error
}

func (e *FenceError) Error() string {
	return e.Path + ", which excludes earlier managers, cannot be read (" + e.Err.Error() + "); if no other manager works on the cluster, use --break-lock to write it again"
}

func (e *FenceError) Unwrap() error { return e.Err }

// State is what a host answers about the lock.
type State struct {
	Held    bool   `json:"held"`
	Holder  Lock   `json:"holder"`
	Highest uint64 `json:"highest"` // highest fencing number seen
	// AgeSeconds is the time since the last heartbeat by the host's
	// monotonic clock; a reboot makes it stale.
	AgeSeconds float64 `json:"ageSeconds"`
	// Stale: no heartbeat for 60 s or a new boot, and no unit of the
	// holder's operation running.
	Stale bool `json:"stale"`
	// Units are the holder's transient units that still run.
	Units []string `json:"units,omitempty"`
}
