package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Stdio has the standard streams of a program in a machine; nil is empty.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// execCgroup is the cgroup of programs that are started from outside. With v2, only a
// leaf can contain processes.
const execCgroup = "exec"

// Exec runs a program in the machine, as root, outside any unit, and waits for its end. A
// program that exits with a status other than 0 is an *exec.ExitError. When the context
// ends the program is killed.
func (m *Machine) Exec(ctx context.Context, argv []string, stdio Stdio) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio.In, stdio.Out, stdio.Err
	if err := m.enterNamespaces(cmd, func() error { return startIn(cmd, argv[0]) }); err != nil {
		return err
	}
	return cmd.Wait()
}

// A StartError reports a program that could not be started in a machine.
type StartError struct {
	Program string
	Err     error
}

func (e *StartError) Error() string { return "starting " + e.Program + ": " + e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// startIn starts a program from the machine's own search path.
func startIn(cmd *exec.Cmd, name string) error {
	const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	cmd.Dir = "/root"
	cmd.Env = []string{"PATH=" + path, "HOME=/root", "USER=root", "LOGNAME=root", "LANG=C.UTF-8", "TERM=" + os.Getenv("TERM")}
	cmd.Path, cmd.Err = name, nil
	if filepath.Base(name) == name {
		for _, dir := range filepath.SplitList(path) {
			cmd.Path = filepath.Join(dir, name)
			if info, err := os.Stat(cmd.Path); err == nil && info.Mode().Perm()&0o111 != 0 {
				break
			}
		}
	}
	err := cmd.Start()
	if file := (*fs.PathError)(nil); errors.As(err, &file) {
		return &StartError{Program: name, Err: file.Err}
	}
	return err
}

// enterNamespaces runs f, which starts cmd, on a thread in the machine's namespaces and cgroups,
// which cmd inherits.
func (m *Machine) enterNamespaces(cmd *exec.Cmd, f func() error) error {
	s, err := m.readState()
	if err != nil {
		return err
	}
	if !s.Init.IsAlive() {
		return refuseWith(IDMachineOff, "machine "+m.Name()+" is not running", "slipway sandbox start "+m.Name())
	}
	groups, err := m.sandbox.openCgroups()
	if err != nil {
		return err
	}
	if groups.isV2() {
		leaf, err := groups.openLeaf(m.Name())
		if err != nil {
			return err
		}
		defer leaf.Close()
		cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(leaf.Fd())}
	}
	done := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		var err error
		if !groups.isV2() {
			err = groups.joinThread(m.Name())
		}
		if err == nil {
			err = enterThread(s.Init.PID)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func enterThread(pid int) error {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "ns")
	var spaces []*os.File
	defer func() {
		for _, f := range spaces {
			f.Close()
		}
	}()
	// All are opened before /proc becomes the machine's.
	for _, name := range []string{"cgroup", "ipc", "uts", "net", "pid", "mnt"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("entering the machine: %w", err)
		}
		spaces = append(spaces, f)
	}
	// Threads of a process share their root directory unless they unshare it.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("entering the machine: %w", err)
	}
	for _, f := range spaces {
		if err := unix.Setns(int(f.Fd()), 0); err != nil {
			return fmt.Errorf("entering the machine's %s namespace: %w", filepath.Base(f.Name()), err)
		}
	}
	// Namespaces do not limit root; the machine's init is limited, and so is this
	// program.
	return giveUpClock()
}

// openLeaf creates and opens the v2 cgroup for programs from outside; the kernel starts
// them in it. (A thread cannot be in another cgroup than its process.)
func (c cgroups) openLeaf(part string) (*os.File, error) {
	dir := filepath.Join(c.hierarchies[0].Mount, c.name, part, execCgroup)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("creating a cgroup: %w", err)
	}
	return os.Open(dir)
}

// joinThread moves this thread into a machine's part of each v1 tree.
func (c cgroups) joinThread(part string) error {
	id := []byte(strconv.Itoa(unix.Gettid()))
	for _, h := range c.hierarchies {
		if err := os.WriteFile(filepath.Join(h.Mount, c.name, part, "tasks"), id, 0); err != nil {
			return fmt.Errorf("joining a cgroup: %w", err)
		}
	}
	return nil
}
