package transfer

import (
	"os"

	"golang.org/x/sys/unix"
)

// permissionUser returns the user whose file permissions this thread has, which can differ from the
// process.
func permissionUser() int {
	uid, err := unix.SetfsuidRetUid(-1) // an invalid ID sets nothing
	if err != nil {
		return os.Geteuid()
	}
	return uid
}
