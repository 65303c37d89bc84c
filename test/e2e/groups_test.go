package e2e

import (
	"errors"
	"os/exec"
	"sync"
	"syscall"
)

// groups holds the process groups of programs that tests run. An interrupted run ends
// them, with the processes that they have started.
type groups struct {
	mu      sync.Mutex
	leaders map[int]bool
	ended   bool
}

// testPrograms are the groups of this run.
var testPrograms groups

var errInterrupted = errors.New("the run is interrupted")

// runInGroup runs a program in a process group, until it ends or the group is ended. The
// command needs a context; when that is done, the whole group is ended.
func (g *groups) runInGroup(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return endGroup(cmd.Process.Pid) }
	if err := g.startInGroup(cmd); err != nil {
		return err
	}
	err := cmd.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.leaders, cmd.Process.Pid)
	return err
}

func (g *groups) startInGroup(cmd *exec.Cmd) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return errInterrupted
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if g.leaders == nil {
		g.leaders = map[int]bool{}
	}
	g.leaders[cmd.Process.Pid] = true
	return nil
}

// endAll ends all groups, and lets no other start.
func (g *groups) endAll() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	var errs []error
	for leader := range g.leaders {
		if err := endGroup(leader); !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func endGroup(leader int) error { return syscall.Kill(-leader, syscall.SIGKILL) }
