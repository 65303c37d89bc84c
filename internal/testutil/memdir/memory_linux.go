package memdir

import "golang.org/x/sys/unix"

// memory returns a directory in memory; "" if there is none with enough room.
func memory() string {
	const shared = "/dev/shm"
	var fs unix.Statfs_t
	if unix.Statfs(shared, &fs) != nil || fs.Type != unix.TMPFS_MAGIC || fs.Bavail*uint64(fs.Frsize) < room {
		return ""
	}
	return shared
}
