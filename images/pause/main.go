// Pause holds a pod's namespaces and reaps its orphans. With -v it prints its
// version and ends: kubeadm's upgrade check runs it so and waits for its end.
package main

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// version is set by the linker.
var version = "unknown"

func main() {
	if slices.Contains(os.Args[1:], "-v") {
		_, _ = os.Stdout.WriteString("pause " + version + "\n")
		return
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		reapChildren()
	}
}

// reapChildren waits for every child that has ended. One signal may stand for several
// children.
func reapChildren() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if pid <= 0 || err != nil {
			return
		}
	}
}
