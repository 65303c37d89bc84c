package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// startTimeout is generous: a machine starts in about a second.
	startTimeout = 2 * time.Minute
	// stopTimeout is the time for a power-off before the machine is killed.
	stopTimeout = 30 * time.Second
	// killTimeout is the time for the kernel to end a machine.
	killTimeout = 30 * time.Second
)

// Signals that systemd as init understands, see systemd(1); 34 is SIGRTMIN.
const (
	signalPowerOff = unix.Signal(34 + 4)
	signalReboot   = unix.Signal(34 + 5)
)

// A Status is the state of a machine.
type Status struct {
	Running bool `json:"running"`
	// Supervised reports whether a reboot from inside works. A machine continues to run
	// if its supervisor was killed.
	Supervised bool `json:"supervised"`
	// Cut reports whether its cable is pulled.
	Cut bool `json:"cut"`
	// PID is the PID of its init on the host; 0 if it is off.
	PID int `json:"pid,omitempty"`
	// DiskUsed is the disk usage on the host, in bytes.
	DiskUsed int64 `json:"diskUsed"`
	DiskSize int64 `json:"diskSize"`
}

// Name returns the name and host name of the machine.
func (m *Machine) Name() string { return m.spec.Name }

// Address returns its address for the host and the other machines.
func (m *Machine) Address() netip.Addr { return m.spec.Address }

// HostKey returns the public key of its sshd: "ssh-ed25519 AAAA…".
func (m *Machine) HostKey() string { return m.spec.HostKey }

// Sandbox returns its sandbox.
func (m *Machine) Sandbox() *Sandbox { return m.sandbox }

// LogFile returns the log of its supervisor.
func (m *Machine) LogFile() string { return filepath.Join(m.sandbox.dir, m.spec.Name, logFile) }

func (m *Machine) filePath(name string) string { return m.sandbox.filePath(m.spec.Name, name) }

func (m *Machine) readState() (runState, error) {
	var s runState
	err := readJSON(m.filePath(stateFile), &s)
	return s, err
}

// Status returns the actual state, independent of records.
func (m *Machine) Status() (Status, error) {
	s, err := m.readState()
	if err != nil {
		return Status{}, err
	}
	st := Status{Running: s.Init.IsAlive(), Supervised: s.Supervisor.IsAlive(), Cut: m.isCut(), DiskSize: m.spec.Disk}
	if st.Running {
		st.PID = s.Init.PID
	}
	if info, err := os.Stat(m.filePath(diskFile)); err == nil {
		if sys, ok := info.Sys().(*syscall.Stat_t); ok {
			st.DiskUsed = sys.Blocks * 512
		}
	}
	return st, nil
}

func (m *Machine) isCut() bool {
	_, err := os.Stat(m.filePath(cutFile))
	return err == nil
}

// Start starts a machine that is off and waits until its sshd responds. It does nothing
// for a running machine.
func (m *Machine) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("the machine does not start; see "+m.LogFile()))
	defer cancel()
	s, err := m.readState()
	if err != nil {
		return err
	}
	if s.Init.IsAlive() {
		return m.waitReady(ctx)
	}
	if err := m.prepareHost(ctx); err != nil {
		return err
	}
	if err := m.startSupervisor(ctx); err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	return m.waitReady(ctx)
}

// prepareHost creates the host's side of the network, if it is missing.
func (m *Machine) prepareHost(ctx context.Context) error {
	l := m.sandbox.network()
	return withHost(ctx, func(host *hostState) error {
		if err := host.claimRange(l.rangeID(), m.sandbox.dir); err != nil {
			return err
		}
		return l.bringUp(ctx, host)
	})
}

// startSupervisor starts the supervisor process of the machine, independent of this one:
// a new session, no terminal, no environment. It returns when the machine has an init.
func (m *Machine) startSupervisor(ctx context.Context) error {
	log, err := os.OpenFile(m.filePath(logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command(m.sandbox.program, "sandbox", "supervise", m.sandbox.dir, m.spec.Name) //nolint:noctx // it outlives the context
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{w}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/", "GOGC=20"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return err
	}
	// While this process runs, it must collect the other.
	go func() { _ = cmd.Wait() }()

	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Now()) })
	defer stop()
	said, err := io.ReadAll(r)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case string(said) == "ok":
		return nil
	case len(said) == 0:
		return errors.New("its supervisor stopped; see " + m.LogFile())
	default:
		return errors.New(string(said))
	}
}

// waitReady waits until sshd responds; for a machine with a pulled cable it does not
// wait.
func (m *Machine) waitReady(ctx context.Context) error {
	return pollUntil(ctx, 30*time.Millisecond, func() (bool, error) {
		if m.isCut() {
			return true, nil
		}
		if s, err := m.readState(); err != nil || !(s.Init.IsAlive() || s.Supervisor.IsAlive()) {
			return false, errors.Join(err, errors.New("the machine stopped while it started; see "+m.LogFile()))
		}
		d := net.Dialer{Timeout: time.Second}
		c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(m.spec.Address, 22).String())
		if err != nil {
			return false, nil
		}
		defer c.Close()
		if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return false, err
		}
		line, _ := bufio.NewReader(c).ReadString('\n')
		return strings.HasPrefix(line, "SSH-"), nil
	})
}

// Stop powers the machine off; after 30 s it is killed. It does nothing for a machine
// that is off.
func (m *Machine) Stop(ctx context.Context) error {
	if err := m.sandbox.requireClaim(ctx); err != nil {
		return err
	}
	s, err := m.readState()
	if err != nil {
		return err
	}
	soft, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if s.Init.Signal(signalPowerOff) && m.waitOff(soft, s) == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return m.Kill(ctx)
}

// Kill ends the machine like a power failure: its link is removed first, so that its
// peers receive nothing.
func (m *Machine) Kill(ctx context.Context) error {
	if err := m.sandbox.requireClaim(ctx); err != nil {
		return err
	}
	l := m.sandbox.network()
	if err := l.setCable(ctx, m.spec.Address, "down"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, killTimeout, errors.New("the machine does not stop"))
	defer cancel()
	s, err := m.readState()
	if err != nil {
		return err
	}
	s.Init.Signal(unix.SIGKILL)
	return m.waitOff(ctx, s)
}

// waitOff waits until a machine is off, and cleans up if it has no supervisor.
func (m *Machine) waitOff(ctx context.Context, s runState) error {
	err := pollUntil(ctx, 10*time.Millisecond, func() (bool, error) {
		return !s.Init.IsAlive() && !s.Supervisor.IsAlive(), nil
	})
	if err != nil {
		return err
	}
	return m.removeLeftovers(ctx)
}

// removeLeftovers removes what a machine that is off may have left on the host.
func (m *Machine) removeLeftovers(ctx context.Context) error {
	groups, err := m.sandbox.openCgroups()
	if err != nil {
		return err
	}
	return errors.Join(
		m.sandbox.network().unplugMachine(ctx, m.spec.Address),
		groups.removePart(m.spec.Name),
		removeIfThere(m.filePath(stateFile)),
	)
}

// Reboot reboots the machine cleanly and waits until its sshd responds again.
func (m *Machine) Reboot(ctx context.Context) error {
	if err := m.sandbox.requireClaim(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("the machine does not restart; see "+m.LogFile()))
	defer cancel()
	before, err := m.readState()
	if err != nil {
		return err
	}
	if !before.Init.IsAlive() || !before.Supervisor.IsAlive() {
		return errors.Join(m.Stop(ctx), m.Start(ctx))
	}
	before.Init.Signal(signalReboot)
	err = pollUntil(ctx, 20*time.Millisecond, func() (bool, error) {
		now, err := m.readState()
		if err == nil && !before.Supervisor.IsAlive() {
			err = errors.New("the machine stopped; see " + m.LogFile())
		}
		return now.Init != before.Init && now.Init.IsAlive(), err
	})
	if err != nil {
		return err
	}
	return m.waitReady(ctx)
}

// CutNetwork disconnects the machine's cable, also across reboots, until HealNetwork.
func (m *Machine) CutNetwork(ctx context.Context) error {
	if err := m.sandbox.requireClaim(ctx); err != nil {
		return err
	}
	if err := os.WriteFile(m.filePath(cutFile), nil, 0o600); err != nil {
		return err
	}
	return m.sandbox.network().setCable(ctx, m.spec.Address, "down")
}

// HealNetwork reconnects the cable.
func (m *Machine) HealNetwork(ctx context.Context) error {
	if err := m.sandbox.requireClaim(ctx); err != nil {
		return err
	}
	if err := removeIfThere(m.filePath(cutFile)); err != nil {
		return err
	}
	return m.sandbox.network().setCable(ctx, m.spec.Address, "up")
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
