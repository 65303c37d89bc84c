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

// BootID returns the ID of the current boot of this machine, "" if it is not known.
func BootID() string {
	id, err := bounded.ReadFile("/proc/sys/kernel/random/boot_id", bounded.Proc)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
