// Package diskspace has the rule for the room that a server needs on the disk of its data.
package diskspace

import "golang.org/x/sys/unix"

const (
	// minReserve and maxReserve limit the reserve. Between them, it is one part in
	// reservePart of the disk.
	minReserve, maxReserve = 16 << 20, 256 << 20
	reservePart            = 20
	// backupFactor is how many reserves a backup leaves free.
	backupFactor = 2
)

// Reserve returns the free bytes below which a server refuses writes, for a disk of some size:
// etcd must always be able to write its log and its database.
func Reserve(all int64) int64 { return min(max(all/reservePart, minReserve), maxReserve) }

// BackupReserve returns the free bytes that a backup leaves on a disk. It is more than Reserve,
// so that the server still accepts writes after a backup.
func BackupReserve(all int64) int64 { return backupFactor * Reserve(all) }

// ReadFree returns the free bytes of the disk of a directory, and all of its bytes.
func ReadFree(dir string) (free, all int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, nil
}
