package ssh

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/fileowner"
)

// Limits of files, in bytes.
const (
	maxKnownHosts = 64 << 20
	maxConfig     = 1 << 20
)

// readFile reads a regular file; /dev/null is empty, as in ssh.
func readFile(name string, limit int64) ([]byte, error) {
	if name == os.DevNull {
		return nil, nil
	}
	return bounded.ReadFile(name, limit)
}

// readAs reads a file that the owner of the home directory named, or that can be a link
// of this user. Under sudo, root does not read files for the user that the user cannot
// read: the file must belong to the user, or belong to root and be readable by all.
func readAs(home, name string, limit int64) ([]byte, error) {
	of, err := fileowner.OwnerOf(home)
	if err != nil {
		return nil, err
	}
	if of == nil || os.Geteuid() != 0 {
		return readFile(name, limit)
	}
	return readChecked(name, limit, func(st *syscall.Stat_t) error { return checkOwner(st, of.UID, 0) })
}

// readConfig reads an ssh configuration file. As in Debian's ssh, it must belong to the
// user or to root, and no other user can have write access, except the group of the
// user's home directory, which usually has no other members.
func readConfig(home, name string) ([]byte, error) {
	uid, gid := 0, 0
	of, err := fileowner.OwnerOf(home)
	if err != nil {
		return nil, err
	}
	if of != nil {
		uid, gid = of.UID, of.GID
	}
	return readChecked(name, maxConfig, func(st *syscall.Stat_t) error {
		if st.Mode&0o002 != 0 || st.Mode&0o020 != 0 && int(st.Gid) != gid {
			return errors.New("other users can write to it; run chmod go-w")
		}
		return checkOwner(st, uid, os.Geteuid())
	})
}

func readChecked(name string, limit int64, check func(*syscall.Stat_t) error) ([]byte, error) {
	if name == os.DevNull {
		return nil, nil
	}
	f, err := bounded.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok {
		err = errors.New("its owner is unknown")
	} else {
		err = check(st)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return bounded.ReadAll(f, limit)
}

// checkOwner returns an error for a file that belongs neither to the user nor to root. Root
// reads its own files for another user only if they are readable by all.
func checkOwner(st *syscall.Stat_t, uid, reader int) error {
	secret := st.Mode&0o004 == 0 && reader == 0
	if int(st.Uid) != uid && (st.Uid != 0 || secret) {
		return fmt.Errorf("it belongs to user %d instead of user %d", st.Uid, uid)
	}
	return nil
}
