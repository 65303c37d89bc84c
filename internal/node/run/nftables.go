//go:build linux

package run

import "golang.org/x/sys/unix"

// hasNFTables says that the kernel speaks nftables.
func hasNFTables() bool {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}
