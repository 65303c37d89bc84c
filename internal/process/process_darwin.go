package process

import (
	"bytes"
	"errors"
	"io/fs"
	"os"

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

func (p Process) stopIf(check func() error) error {
	if !p.IsAlive() {
		return os.ErrProcessDone
	}
	if err := check(); err != nil {
		return err
	}
	err := unix.Kill(p.PID, unix.SIGTERM)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// runsThisProgram reports whether a process runs the file that this one runs.
func runsThisProgram(pid int) (bool, error) {
	raw, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil {
		return false, err
	}
	const count = 4 // bytes of the number of arguments, before the path
	if len(raw) < count {
		return false, errors.New("malformed process arguments")
	}
	path, _, _ := bytes.Cut(raw[count:], []byte{0})
	mine, err := os.Executable()
	if err != nil {
		return false, err
	}
	a, err1 := os.Stat(string(path))
	b, err2 := os.Stat(mine)
	return err1 == nil && err2 == nil && os.SameFile(a, b), errors.Join(err1, err2)
}

// BootID returns "": the hosts of a cluster run Linux, and this machine does not.
func BootID() string { return "" }
