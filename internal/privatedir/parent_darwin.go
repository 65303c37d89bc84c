package privatedir

import (
	"errors"

	"golang.org/x/sys/unix"
)

// memoryDirs returns nothing: macOS has no directory in memory.
func memoryDirs() []string { return nil }

// checkMemory refuses all directories, because macOS has none in memory.
func checkMemory(int, int64) error { return errors.New("it is not in memory") }

// hasReliableLocks reports whether all processes that can see an open directory see the same
// locks. Network file systems can have the locks of each machine separately.
func hasReliableLocks(fd int) bool {
	var st unix.Statfs_t
	err := retryInterrupted(func() error { return unix.Fstatfs(fd, &st) })
	return err == nil && st.Flags&unix.MNT_LOCAL != 0
}
