//go:build apiserver && !long

package lifecycle

// minKilled is the number of processes to kill at least. A process and its successor need about two
// seconds of CPU.
const minKilled = 30

// selectPoints selects the points at which processes are killed.
func selectPoints(all []string) []string { return spreadPoints(all, minKilled+minKilled/10) }
