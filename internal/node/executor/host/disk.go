//go:build linux

package host

import (
	"fmt"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/node/op"
)

// Spare is the free space that a transfer leaves on a file system, in bytes: a full one
// breaks more than the transfer.
const Spare = 64 << 20

// RoomFor rejects content that would not fit, after content held for other hosts was
// dropped.
func (h *Host) RoomFor(dir string, need int64) error {
	err := RoomOn(dir, need)
	if err != nil && h.Blobs != nil {
		h.Blobs.MakeRoom()
		err = RoomOn(dir, need)
	}
	return err
}

// RoomOn rejects content that would not fit on the disk of a directory.
func RoomOn(dir string, need int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("reading the free space below %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < need+Spare {
		return DiskFull(dir, need)
	}
	return nil
}

// DiskFull returns the error for a full disk.
func DiskFull(dir string, need int64) error {
	var st unix.Statfs_t
	free := int64(0)
	if unix.Statfs(dir, &st) == nil {
		free = int64(st.Bavail) * st.Bsize
	}
	return &op.Error{
		Reason: "DiskFull",
		Message: fmt.Sprintf("the disk of %s is full: %s are needed in addition to a reserve of %s, but only %s are free",
			dir, bytesize.Format(need), bytesize.Format(Spare), bytesize.Format(free)),
	}
}

// FsName names the file systems that are relevant for container runtimes.
func FsName(magic int64) string {
	names := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "nfs",
		0x2fc12fc1: "zfs", unix.F2FS_SUPER_MAGIC: "f2fs", unix.RAMFS_MAGIC: "ramfs",
	}
	if n, ok := names[magic]; ok {
		return n
	}
	return fmt.Sprintf("0x%x", magic)
}
