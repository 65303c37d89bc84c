package local

import (
	"os/exec"
	"syscall"
)

// detach gives the program a session of its own.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
