package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/process"
)

// Supervise keeps one machine: it boots it, boots it again when it reboots,
// and removes its remains when it powers off or is killed. When the context
// ends it powers the machine off. It writes "ok" to ready when the machine has an init,
// or the reason for a failure, and closes ready.
//
// Machine.Start starts a separate process for it.
func Supervise(ctx context.Context, dir, name string, log *slog.Logger, ready *os.File) error {
	unix.CloseOnExec(int(ready.Fd()))
	defer ready.Close()
	err := runSupervisor(ctx, dir, name, log, func() error {
		_, err := io.WriteString(ready, "ok")
		return errors.Join(err, ready.Close())
	})
	if err != nil {
		_, _ = io.WriteString(ready, err.Error()) // nothing may read it now
	}
	return err
}

func runSupervisor(ctx context.Context, dir, name string, log *slog.Logger, started func() error) error {
	s, err := loadSandbox(dir)
	if err != nil {
		return err
	}
	// A machine's first process, in separate mounts, starts here as well.
	if err := unix.Fchdir(s.fd); err != nil {
		return fmt.Errorf("entering %s: %w", dir, err)
	}
	m, err := s.FindMachine(name)
	if err != nil {
		return err
	}
	lock, err := m.lockSupervisor(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	groups, err := s.openCgroups()
	if err != nil {
		return err
	}
	if err := groups.joinPart(supervisorCgroup, os.Getpid()); err != nil {
		return err
	}
	// The network of the sandbox is kept, but the cable of the machine is removed, after
	// every kind of end.
	defer func() {
		if err := m.removeLeftovers(context.WithoutCancel(ctx)); err != nil {
			log.Error("removing the remains of the machine", "error", err)
		}
	}()
	self, err := process.Find(os.Getpid())
	if err != nil {
		return err
	}
	for state := (runState{Supervisor: self}); ; {
		init, err := m.bootInit(ctx, groups)
		if err != nil {
			return err
		}
		state.Boots++
		if state.Init, err = process.Find(init.Process.Pid); err == nil {
			err = writeJSON(m.filePath(stateFile), state)
		}
		if err == nil && state.Boots == 1 {
			err = started()
		}
		if err != nil {
			return errors.Join(err, init.Process.Kill(), init.Wait())
		}
		log.Info("booted", "machine", name, "pid", init.Process.Pid, "boots", state.Boots)
		again, end := waitInit(ctx, init, state.Init)
		log.Info("ended", "machine", name, "how", end)
		if !again || ctx.Err() != nil {
			return nil
		}
		if err := groups.removePart(name); err != nil {
			log.Warn("removing cgroups", "error", err)
		}
	}
}

// lockSupervisor makes this the only supervisor of the machine, as long as it runs. It waits for
// one that is about to end.
func (m *Machine) lockSupervisor(ctx context.Context) (*os.File, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("another process controls this machine"))
	defer cancel()
	f, err := lockPath(ctx, m.filePath(lockFile))
	if err != nil {
		return nil, err
	}
	// A machine without its supervisor may still be running.
	if s, err := m.readState(); err != nil || s.Init.IsAlive() {
		return nil, errors.Join(errors.New("the machine is already running"), err, f.Close())
	}
	return f, nil
}

// waitInit waits for the end of a machine's init. A reboot(2) inside ends it with SIGHUP
// for a restart, with SIGINT for a power-off; see reboot(2).
func waitInit(ctx context.Context, init *exec.Cmd, p process.Process) (again bool, how string) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		p.Signal(signalPowerOff)
		t := time.NewTimer(stopTimeout)
		defer t.Stop()
		select {
		case <-ended:
		case <-t.C:
			p.Signal(unix.SIGKILL)
		}
	})
	defer stop()
	_ = init.Wait() // the state has more details
	close(ended)
	ws, ok := init.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() {
		return false, init.ProcessState.String()
	}
	switch ws.Signal() {
	case unix.SIGHUP:
		return true, "reboot"
	case unix.SIGINT:
		return false, "power-off"
	}
	return false, init.ProcessState.String()
}

// bootInit starts a machine's first process in new namespaces, puts it into its cgroups,
// connects it, and returns when it has become systemd.
func (m *Machine) bootInit(ctx context.Context, groups cgroups) (_ *exec.Cmd, err error) {
	config, err := m.bootConfig(groups)
	if err != nil {
		return nil, err
	}
	failed, failedEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer failed.Close()
	in, inEnd, err := os.Pipe()
	if err != nil {
		failedEnd.Close()
		return nil, err
	}
	defer inEnd.Close()
	// The program may have been replaced or removed since.
	cmd := exec.Command("/proc/self/exe", "sandbox", "boot") //nolint:noctx // ended by waitInit
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, os.Stderr, os.Stderr
	cmd.ExtraFiles = []*os.File{failedEnd}
	cmd.SysProcAttr = &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET,
		Setsid:     true,
	}
	err = cmd.Start()
	in.Close()
	failedEnd.Close()
	if err != nil {
		return nil, fmt.Errorf("starting in new namespaces: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreExit(cmd.Process.Kill()), ignoreExit(cmd.Wait()))
		}
	}()
	if err := groups.joinPart(m.spec.Name, cmd.Process.Pid); err != nil {
		return nil, err
	}
	if err := m.sandbox.network().plugMachine(ctx, m.spec.Address, cmd.Process.Pid, m.isCut()); err != nil {
		return nil, err
	}
	// Only now does it continue.
	if _, err := io.Copy(inEnd, bytes.NewReader(config)); err != nil {
		return nil, err
	}
	if err := inEnd.Close(); err != nil {
		return nil, err
	}
	said, err := io.ReadAll(failed)
	if err == nil && len(said) > 0 {
		err = errors.New(string(said))
	}
	return cmd, err
}

// ignoreExit ignores the error of a process that was supposed to end.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.Is(err, os.ErrProcessDone) || errors.As(err, &exit) {
		return nil
	}
	return err
}

func (m *Machine) bootConfig(groups cgroups) ([]byte, error) {
	key, err := os.ReadFile(m.filePath(hostKeyFile))
	if err != nil {
		return nil, err
	}
	resolv, err := m.sandbox.resolvConf()
	if err != nil {
		return nil, err
	}
	l := m.sandbox.network()
	return json.Marshal(bootConfig{
		Hostname: m.spec.Name, Disk: filepath.Join(m.spec.Name, diskFile), Root: filepath.Join(m.spec.Name, rootDir),
		Network: l.insideCommands(m.spec.Address), Hierarchies: groups.hierarchies,
		MachineID: m.spec.MachineID,
		Files: []bootFile{
			{"etc/hostname", 0o644, []byte(m.spec.Name + "\n")},
			{
				"etc/hosts", 0o644,
				fmt.Appendf(nil, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n%s\t%s\n", m.spec.Address, m.spec.Name),
			},
			{"etc/resolv.conf", 0o644, resolv},
			{"etc/ssh/ssh_host_ed25519_key", 0o600, key},
			{"etc/ssh/ssh_host_ed25519_key.pub", 0o644, []byte(m.spec.HostKey + " " + m.spec.Name + "\n")},
			{"root/.ssh/authorized_keys", 0o600, []byte(m.sandbox.spec.AuthorizedKey + "\n")},
		},
	})
}

// resolvConf returns the host's name servers for machines that can reach them. Other
// machines get the address of the bridge, which has no name server: lookups fail at once,
// and programs that need an entry have one.
func (s *Sandbox) resolvConf() ([]byte, error) {
	if !s.spec.Internet {
		return fmt.Appendf(nil, "nameserver %s\n", s.network().gatewayAddress()), nil
	}
	return hostResolvConf()
}
