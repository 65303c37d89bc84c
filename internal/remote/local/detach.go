package local

import (
	"os/exec"
	"syscall"
)

// startDetached starts the program in a separate session.
func startDetached(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
