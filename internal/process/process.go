// Package process tells processes of this machine apart, and sends signals to
// the one that is meant: the kernel gives the number of a process that has
// ended to another one.
package process

// A Process identifies a process permanently. Two processes with the same number differ
// in their start times.
type Process struct {
	PID int `json:"pid"`
	// Start is in clock ticks since the host booted; on macOS, in
	// microseconds since 1970.
	Start uint64 `json:"start"`
}

// IsAlive reports whether the process still runs.
func (p Process) IsAlive() bool {
	if p.PID <= 0 {
		return false
	}
	now, err := Find(p.PID)
	return err == nil && now == p
}
