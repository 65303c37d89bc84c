package transfer

import (
	"os"

	"golang.org/x/sys/unix"
)

// self is the user whose rights to files this thread has, which are not always
// those of the process.
func self() int {
	uid, err := unix.SetfsuidRetUid(-1) // an id that is none sets nothing
	if err != nil {
		return os.Geteuid()
	}
	return uid
}
