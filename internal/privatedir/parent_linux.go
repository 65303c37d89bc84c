package privatedir

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memoryDirs returns the directories that can be in memory. The runtime directory is second:
// systemd removes it after the last logout, also for root.
func memoryDirs() []string {
	dirs := []string{"/dev/shm"}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		dirs = append(dirs, dir)
	}
	return dirs
}

// spare is the free space that remains for other programs, in bytes. Containers often have 64
// MiB of shared memory.
const spare = 8 << 20

// checkMemory refuses an open directory that is not in memory, or has no room for need bytes.
func checkMemory(fd int, need int64) error {
	st, err := statfs(fd)
	if err != nil {
		return err
	}
	if uint32(st.Type) != unix.TMPFS_MAGIC {
		return errors.New("it is not in memory")
	}
	if st.Blocks == 0 { // a tmpfs without a limit
		return nil
	}
	if free, needed := st.Bavail*uint64(st.Frsize), uint64(max(need, 0))+spare; free < needed {
		return fmt.Errorf("it has %d bytes free, but %d are needed", free, needed)
	}
	return nil
}

// hasReliableLocks reports whether all processes that can see an open directory see the same
// locks. Network file systems can have the locks of each machine separately.
func hasReliableLocks(fd int) bool {
	st, err := statfs(fd)
	if err != nil {
		return false
	}
	switch uint32(st.Type) {
	case unix.TMPFS_MAGIC, unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
		unix.BCACHEFS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, zfsMagic:
		return true
	}
	return false
}

// zfsMagic is ZFS_SUPER_MAGIC of OpenZFS, which is not part of Linux.
const zfsMagic = 0x2fc12fc1

func statfs(fd int) (st unix.Statfs_t, err error) {
	err = retryInterrupted(func() error { return unix.Fstatfs(fd, &st) })
	return st, err
}
