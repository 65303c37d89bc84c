//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lab holds the hosts: a directory in memory, and an SSH server that forwards each client
// to the host with the dialled address.
type lab struct {
	options
	dir  string // in memory
	gate string // the files that sshd sees
	key  string // the private key that hosts take
	sshd *exec.Cmd
}

// runLab measures, in namespaces that this process may do with what it likes.
func runLab(ctx context.Context, text string) (err error) {
	l := &lab{}
	if err := json.Unmarshal([]byte(text), &l.options); err != nil {
		return err
	}
	l.dir = filepath.Join(l.Home, "lab")
	l.gate = filepath.Join(l.dir, "gate", "root")
	l.key = filepath.Join(l.Home, "id_ed25519")
	if err := l.setUp(ctx); err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	defer func() {
		_ = l.sshd.Process.Kill()
		_ = l.sshd.Wait() // killed
	}()
	return l.measureStages(ctx)
}

func (l *lab) setUp(ctx context.Context) error {
	if err := os.Mkdir(l.dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", l.dir, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	if err := needModules(); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	// The loopback link answers for all of them.
	if err := runQuietly(exec.CommandContext(ctx, "ip", "route", "add", "local", "10.64.0.0/16", "dev", "lo")); err != nil {
		return err
	}
	for name, text := range standIns() {
		if err := writeFile(filepath.Join(l.dir, "stand-ins", name), text, 0o755); err != nil {
			return err
		}
	}
	if err := writeFile(filepath.Join(l.dir, "swaps"), "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n", 0o444); err != nil {
		return err
	}
	return l.openGate(ctx)
}

// needModules checks for the kernel modules that hosts would load on this machine.
func needModules() error {
	filesystems, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	_, bridges := os.Stat("/proc/sys/net/bridge")
	if !bytes.Contains(filesystems, []byte("\toverlay\n")) || bridges != nil {
		return errors.New("this kernel lacks overlay or br_netfilter: run modprobe overlay br_netfilter first")
	}
	return nil
}

// sshd runs enter for every command of a client: it enters the host with the dialled
// address and runs the command there.
const enter = `#!/bin/sh
set -- $SSH_CONNECTION
exec nsenter --mount=/ns/$3/mnt --uts=/ns/$3/uts --net=/ns/$3/net /bin/sh -c "$SSH_ORIGINAL_COMMAND"
`

const sshdConfig = `ListenAddress 0.0.0.0:22
HostKey /etc/ssh/host_key
AuthorizedKeysFile /etc/ssh/authorized_keys
ForceCommand exec /enter
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
UseDNS no
PrintMotd no
MaxStartups 10000
LoginGraceTime 300
Subsystem sftp /usr/lib/openssh/sftp-server
PidFile none
`

// openGate starts sshd with separate configuration files.
func (l *lab) openGate(ctx context.Context) error {
	base := filepath.Dir(l.gate)
	upper := filepath.Join(base, "upper")
	public, err := writeKey(ctx, l.key)
	if err != nil {
		return err
	}
	if _, err := writeKey(ctx, filepath.Join(upper, "etc/ssh/host_key")); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"etc/ssh/authorized_keys": public, "etc/ssh/bench_config": sshdConfig,
	} {
		if err := writeFile(filepath.Join(upper, name), text, 0o644); err != nil {
			return err
		}
	}
	if err := writeFile(filepath.Join(upper, "enter"), enter, 0o755); err != nil {
		return err
	}
	for _, dir := range []string{l.gate, filepath.Join(base, "work"), filepath.Join(upper, "ns")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mountSystem(l.gate, []string{upper, l.Base}, filepath.Join(base, "work")); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(l.gate, "run/sshd"), 0o755); err != nil {
		return err
	}
	// A login shell that is no more than one.
	if err := runQuietly(exec.CommandContext(ctx, "chroot", l.gate, "usermod", "--shell", "/bin/sh", "root")); err != nil {
		return err
	}
	l.sshd = exec.CommandContext(ctx, "/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/bench_config")
	l.sshd.SysProcAttr = &syscall.SysProcAttr{Chroot: l.gate}
	l.sshd.Dir = "/"
	log, err := os.Create(filepath.Join(l.dir, "sshd.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	l.sshd.Stderr = log
	if err := l.sshd.Start(); err != nil {
		return fmt.Errorf("starting sshd: %w", err)
	}
	return waitForServer(ctx, "10.64.0.1:22")
}

// waitForServer waits for a server, for a bounded time.
func waitForServer(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", address, err)
		case <-tick.C:
		}
	}
}

// writeKey makes a key and answers its public half.
func writeKey(ctx context.Context, path string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	if err := runQuietly(exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f", path)); err != nil {
		return "", err
	}
	public, err := os.ReadFile(path + ".pub")
	return string(public), err
}

// withHosts creates n new hosts, calls fn with them, and removes them.
func (l *lab) withHosts(ctx context.Context, n int, fn func([]host) error) (err error) {
	dir := filepath.Join(l.dir, "hosts")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755,nr_inodes=0,size=90%"); err != nil {
		return err
	}
	var hosts []host
	defer func() {
		for _, h := range hosts {
			err = errors.Join(err, l.dropHost(h))
		}
		err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH), os.Remove(dir))
	}()
	for i := range n {
		h := newHost(i, dir)
		h.Lower = []string{filepath.Join(l.dir, "stand-ins"), l.Base}
		h.Swaps = filepath.Join(l.dir, "swaps")
		if err := h.populateHost(isLean(n)); err != nil {
			return err
		}
		if err := l.raiseHost(ctx, &h); err != nil {
			return fmt.Errorf("making host %s: %w", h.Name, err)
		}
		hosts = append(hosts, h)
	}
	return fn(hosts)
}

// raiseHost makes a host's namespaces, and lets the gate know of them.
func (l *lab) raiseHost(ctx context.Context, h *host) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, asHost, string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWNET}
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil && strings.TrimSpace(line) == "made" {
		err = l.admitHost(h, cmd.Process.Pid)
	}
	err = errors.Join(err, in.Close(), cmd.Wait())
	if err != nil {
		return fmt.Errorf("%w\n%s", err, said.String())
	}
	return nil
}

// admitHost keeps the namespaces of a process, and has the gate find them by the
// host's address.
func (l *lab) admitHost(h *host, pid int) error {
	h.namespaces = map[string]*os.File{}
	dir := filepath.Join(l.gate, "ns", h.Address)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, kind := range namespaceKinds() {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if err != nil {
			return err
		}
		h.namespaces[kind] = f
		if err := os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), filepath.Join(dir, kind)); err != nil {
			return err
		}
	}
	return nil
}

// dropHost ends a host's namespaces, and with them what is mounted in them.
func (l *lab) dropHost(h host) error {
	var errs []error
	for _, kind := range slices.Sorted(maps.Keys(h.namespaces)) {
		errs = append(errs, h.namespaces[kind].Close())
	}
	return errors.Join(append(errs, os.RemoveAll(filepath.Join(l.gate, "ns", h.Address)))...)
}
