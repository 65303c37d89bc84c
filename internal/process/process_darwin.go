package process

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// zombie is SZOMB of <sys/proc.h>: a process that has ended and was not waited for.
const zombie = 5

// Find identifies a running process; fs.ErrNotExist if there is none.
func Find(pid int) (Process, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if errors.Is(err, unix.EIO) { // how package unix reports an empty answer
		err = fs.ErrNotExist
	}
	if err != nil {
		return Process{}, err
	}
	if int(info.Proc.P_pid) != pid || info.Proc.P_stat == zombie {
		return Process{}, fs.ErrNotExist
	}
	start := info.Proc.P_starttime
	return Process{PID: pid, Start: uint64(start.Sec)*1e6 + uint64(start.Usec)}, nil
}

// BootID returns "": the hosts of a cluster run Linux, and this machine does not.
func BootID() string { return "" }
