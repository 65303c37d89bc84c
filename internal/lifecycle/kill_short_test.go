//go:build apiserver && !long

package lifecycle

import "time"

const (
	// managers limits the managers that run or wait for a lock at the same time: each must renew its lock in time.
	managers = 4
	// killLeaseTime is how long a lock outlasts a killed process. On a busy machine, a renewal can take seconds.
	killLeaseTime = 9 * time.Second
)

// minKilled is the number of processes to kill at least. A process and its successor need about two
// seconds of CPU.
const minKilled = 30

// selectPoints selects the points at which processes are killed.
func selectPoints(all []string) []string { return spreadPoints(all, minKilled+minKilled/10) }

// maxFaults limits the faults of a delete.
const maxFaults = 24

// selectFaults selects faults of a delete.
func selectFaults(all []deleteFault) []deleteFault { return spreadPoints(all, maxFaults) }
