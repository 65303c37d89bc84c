package local

import (
	"os/exec"
	"syscall"
)

// detach starts the program in a separate session.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
