//go:build apiserver && long

package lifecycle

import "time"

const (
	// managers limits the managers that run or wait for a lock at the same time.
	managers = 8
	// killLeaseTime is how long a lock outlasts a killed process. This test takes minutes, and other programs can use
	// the machine in this time.
	killLeaseTime = 20 * time.Second
)

// minKilled is the number of processes to kill at least.
const minKilled = 200

// selectPoints selects the points at which processes are killed.
func selectPoints(all []string) []string { return spreadPoints(all, minKilled+minKilled/10) }

// selectFaults selects the faults of a delete: all of them.
func selectFaults(all []deleteFault) []deleteFault { return all }
