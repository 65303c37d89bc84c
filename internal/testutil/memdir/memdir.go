// Package memdir is for tests that write and sync many files: their temporary directories
// are in memory. It links into no program.
package memdir

import "os"

// room is the free space, in bytes, without which the disk is used: containers often have
// only a few megabytes of shared memory.
const room = 2 << 30

// Use makes a directory and lets all temporary directories of the process be made in it.
// It is in memory if this machine has the room. TestMain calls Use, and removes the
// directory at the end.
//
// A test that kills a process can use it: what the process has written remains. It has
// no disk, so it shows nothing about a power failure.
func Use() (dir string, err error) {
	if dir, err = os.MkdirTemp(memory(), "slipway-test-"); err != nil {
		return "", err
	}
	return dir, os.Setenv("TMPDIR", dir)
}
