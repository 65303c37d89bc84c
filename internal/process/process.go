// Package process tells processes of this machine apart, and sends signals to
// the one that is meant: the kernel gives the number of a process that has
// ended to another one.
package process

import (
	"errors"
	"fmt"
)

// A Process identifies a process permanently. Two processes with the same number differ
// in their start times.
type Process struct {
	PID int `json:"pid"`
	// Start is in clock ticks since the host booted; on macOS, in
	// microseconds since 1970.
	Start uint64 `json:"start"`
}

// ErrOtherProgram is a process that runs another program than this one.
var ErrOtherProgram = errors.New("it runs another program")

// IsAlive reports whether the process still runs.
func (p Process) IsAlive() bool {
	if p.PID <= 0 {
		return false
	}
	now, err := Find(p.PID)
	return err == nil && now == p
}

// StopSame asks the process to stop (SIGTERM) if it runs the same program as
// this process. The error is os.ErrProcessDone if the process has ended, and
// ErrOtherProgram if it runs another program.
func (p Process) StopSame() error {
	return p.stopIf(func() error {
		same, err := runsThisProgram(p.PID)
		if err != nil {
			return fmt.Errorf("looking at process %d: %w", p.PID, err)
		}
		if !same {
			return ErrOtherProgram
		}
		return nil
	})
}
