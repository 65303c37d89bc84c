package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
)

// Find identifies a running process; fs.ErrNotExist if there is none.
func Find(pid int) (Process, error) {
	stat, err := bounded.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"), bounded.Proc)
	if errors.Is(err, unix.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Process{}, err
	}
	start, state, err := parseStat(string(stat))
	if err != nil {
		return Process{}, err
	}
	if state == "Z" {
		return Process{}, fs.ErrNotExist
	}
	return Process{PID: pid, Start: start}, nil
}

// parseStat reads the state and the start time in /proc/PID/stat, see
// proc(5); the program's name before them may hold anything.
func parseStat(s string) (start uint64, state string, err error) {
	i := strings.LastIndexByte(s, ')')
	fields := strings.Fields(s[i+1:])
	if i < 0 || len(fields) < 20 {
		return 0, "", errors.New("malformed process status")
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, fields[0], err
}

// Signal sends a signal to this process, and to no other one that got its
// number since; it reports whether the process was there.
func (p Process) Signal(sig unix.Signal) bool {
	return p.withPidfd(func(fd int) error { return unix.PidfdSendSignal(fd, sig, nil, 0) }) == nil
}

func (p Process) stopIf(check func() error) error {
	err := p.withPidfd(func(fd int) error {
		if err := check(); err != nil {
			return err
		}
		return unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
	})
	if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return os.ErrProcessDone
	}
	return err
}

// withPidfd calls f with a descriptor of the process, which keeps its number from
// being used again.
func (p Process) withPidfd(f func(fd int) error) error {
	if p.PID <= 0 {
		return os.ErrProcessDone
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !p.IsAlive() {
		return os.ErrProcessDone
	}
	return f(fd)
}

// runsThisProgram reports whether a process runs the file that this one runs, or one
// that was at its path before an update.
func runsThisProgram(pid int) (bool, error) {
	const self = "/proc/self/exe"
	its := filepath.Join("/proc", strconv.Itoa(pid), "exe")
	a, err := os.Stat(its)
	if err != nil {
		return false, err
	}
	b, err := os.Stat(self)
	if err != nil || os.SameFile(a, b) {
		return err == nil, err
	}
	path, err1 := os.Readlink(its)
	mine, err2 := os.Readlink(self)
	const gone = " (deleted)"
	return strings.TrimSuffix(path, gone) == strings.TrimSuffix(mine, gone), errors.Join(err1, err2)
}

// BootID returns the ID of the current boot of this machine, "" if it is not known.
func BootID() string {
	id, err := bounded.ReadFile("/proc/sys/kernel/random/boot_id", bounded.Proc)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
