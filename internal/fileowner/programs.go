package fileowner

import (
	"os"
	"os/user"
	"strconv"
	"syscall"

	"slipway.dev/slipway/internal/safefile"
)

// Credential returns the credential of a program that runs as the owner, with the owner's
// groups.
func (o *Owner) Credential() *syscall.Credential {
	if o == nil {
		return nil
	}
	as := &syscall.Credential{Uid: uint32(o.UID), Gid: uint32(o.GID)}
	if u, err := user.LookupId(strconv.Itoa(o.UID)); err == nil {
		groups, _ := u.GroupIds() // without them, it has only its own group
		for _, g := range groups {
			if id, err := strconv.ParseUint(g, 10, 32); err == nil {
				as.Groups = append(as.Groups, uint32(id))
			}
		}
	}
	return as
}

// Environ returns the environment of a program that runs as the owner: with the
// owner's home.
func (o *Owner) Environ(env []string) []string {
	if o == nil {
		return env
	}
	u, err := user.LookupId(strconv.Itoa(o.UID))
	if err != nil {
		return env // a user without a name has no home
	}
	return append(env[:len(env):len(env)], "HOME="+u.HomeDir, "USER="+u.Username, "LOGNAME="+u.Username)
}

// ProgramUser returns the user for programs in a directory, on behalf of the owner: root (nil)
// only if no other user can write there, or there is no other user; a user could put
// links and programs in their way.
func (o *Owner) ProgramUser(dir string) *Owner {
	if os.Geteuid() != 0 || safefile.RootOnly(dir) {
		return nil
	}
	if info, err := safefile.Stat(dir); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			return &Owner{UID: int(st.Uid), GID: int(st.Gid)}
		}
	}
	return o
}
