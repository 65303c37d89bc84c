//go:build !linux

package memdir

// memory returns "": only Linux has a directory in memory.
func memory() string { return "" }
