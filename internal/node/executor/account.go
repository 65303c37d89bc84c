//go:build linux

package executor

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// credential makes a program run as the user.
func (a account) credential() *syscall.Credential {
	c := &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	for _, g := range a.groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c
}

// becomeUser gives only this thread the user's file permissions: unlike the calls of
// package syscall, these calls change no other thread.
func (a account) becomeUser() error {
	if a.uid == 0 {
		return nil
	}
	err := unix.Setgroups(a.groups)
	if err == nil {
		_, err = unix.SetfsgidRetGid(a.gid)
	}
	if err == nil {
		_, err = unix.SetfsuidRetUid(a.uid)
	}
	if err != nil {
		return fmt.Errorf("assuming the file permissions of %s: %w", a.name, err)
	}
	// Neither call reports a refusal; called with an invalid ID, they return the current
	// one.
	gid, err1 := unix.SetfsgidRetGid(-1)
	uid, err2 := unix.SetfsuidRetUid(-1)
	if err1 != nil || err2 != nil || gid != a.gid || uid != a.uid {
		return fmt.Errorf("assuming the file permissions of %s was refused", a.name)
	}
	return nil
}
