//go:build linux

package run

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// credential has a program run as the user.
func (a account) credential() *syscall.Credential {
	c := &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	for _, g := range a.groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c
}

// become gives this thread alone the user's rights to files; root's thread
// stays what it is. The runtime's own calls would change all threads.
func (a account) become() error {
	if a.uid == 0 {
		return nil
	}
	groups := make([]uint32, len(a.groups), len(a.groups)+1)
	for i, g := range a.groups {
		groups[i] = uint32(g)
	}
	list := append(groups, 0) // never empty: there is an address to take
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&list[0])), 0); errno != 0 {
		return fmt.Errorf("taking the groups of %s: %w", a.name, errno)
	}
	for _, set := range []struct{ call, id int }{{unix.SYS_SETFSGID, a.gid}, {unix.SYS_SETFSUID, a.uid}} {
		// Neither says whether it failed; asked with an id that is none, they
		// answer the present one.
		_, _, _ = unix.RawSyscall(uintptr(set.call), uintptr(set.id), 0, 0)
		if now, _, _ := unix.RawSyscall(uintptr(set.call), ^uintptr(0), 0, 0); int(now) != set.id {
			return fmt.Errorf("taking the rights of %s to files was refused", a.name)
		}
	}
	return nil
}
