package sandbox

import (
	"syscall"

	"golang.org/x/sys/unix"
)

type unixStat = syscall.Stat_t

// signal sends a signal to this process and to no other that got its number
// since; it says whether the process was there.
func (p process) signal(sig unix.Signal) bool {
	if p.PID <= 0 {
		return false
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	// The descriptor pins the process; now it can be told from another.
	return p.alive() && unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}
