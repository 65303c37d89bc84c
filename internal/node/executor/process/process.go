//go:build linux

package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
)

// Process identifies a process by its PID and start time.
type Process struct {
	PID    int
	Parent int
	start  string
	Shim   bool // keeps a container; exits after the container
}

// Program returns the name with which the process was started, without its directory.
func (p Process) Program() string {
	raw, err := bounded.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID), bounded.Proc)
	if err != nil {
		return "" // gone meanwhile
	}
	name, _, _ := strings.Cut(string(raw), "\x00")
	return filepath.Base(name)
}

// Signal signals the process to stop, unless its PID belongs to another process now.
func (p Process) Signal(how unix.Signal) error {
	if start, err := StartTime(p.PID); err != nil || start != p.start {
		return nil
	}
	if err := unix.Kill(p.PID, how); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stopping process %d: %w", p.PID, err)
	}
	return nil
}

// PodProcesses returns the processes of pods on this machine: the shims of the runtime's
// Kubernetes namespace with all their descendants, and the processes in the cgroups of
// pods. Machines inside this one, in separate process namespaces, are not included.
func PodProcesses(h *host.Host, cgroups []string) ([]Process, error) {
	if len(cgroups) == 0 {
		return nil, nil
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	here, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil, fmt.Errorf("reading our process namespace: %w", err)
	}
	children := map[int][]Process{}
	var found []Process
	for _, dir := range dirs {
		p, ok := ReadProcess(dir)
		if !ok {
			continue
		}
		p.Shim = isShim(dir, here)
		if p.Shim {
			found = append(found, p)
		}
		children[p.Parent] = append(children[p.Parent], p)
	}
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].PID]...)
	}
	for _, dir := range FindCgroups(h, cgroups) {
		raw, err := bounded.ReadFile(filepath.Join(dir, "cgroup.procs"), bounded.Proc)
		if err != nil {
			continue // gone meanwhile
		}
		for _, f := range strings.Fields(string(raw)) {
			if p, ok := ReadProcess("/proc/" + f); ok {
				found = append(found, p)
			}
		}
	}
	seen := map[int]bool{os.Getpid(): true, 0: true, 1: true}
	return slices.DeleteFunc(found, func(p Process) bool {
		was := seen[p.PID]
		seen[p.PID] = true
		return was
	}), nil
}

// ReadProcess reads a process; false if it is gone or dead.
func ReadProcess(dir string) (p Process, ok bool) {
	pid, err := strconv.Atoi(filepath.Base(dir))
	if err != nil {
		return p, false
	}
	raw, err := bounded.ReadFile(filepath.Join(dir, "stat"), bounded.Proc)
	if err != nil {
		return p, false
	}
	f := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return p, false
	}
	parent, err := strconv.Atoi(f[1])
	return Process{PID: pid, Parent: parent, start: f[19]}, err == nil
}

// isShim reports whether a process is a containerd shim for Kubernetes on this machine.
func isShim(dir, here string) bool { return IsContainerdShim(ShimArgs(dir, here)) }

// ShimArgs returns the arguments of a containerd or Docker shim on this machine, by its
// directory in /proc; nil for any other process.
func ShimArgs(dir, here string) []string {
	exe, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil || !strings.HasPrefix(filepath.Base(exe), "containerd-shim") {
		return nil
	}
	raw, err := bounded.ReadFile(filepath.Join(dir, "cmdline"), bounded.Proc)
	if err != nil {
		return nil
	}
	if ns, err := os.Readlink(filepath.Join(dir, "ns/pid")); err != nil || ns != here {
		return nil
	}
	return strings.Split(string(raw), "\x00")
}

// IsContainerdShim reports, from its arguments, whether a shim belongs to Slipway's
// containerd and to Kubernetes: a host can have another containerd, or use this one for
// other purposes.
func IsContainerdShim(args []string) bool {
	return hasFlag(args, "-namespace", "k8s.io") && hasFlag(args, "-address", ContainerdSocket)
}

// IsDockerShim reports, from its arguments, whether a shim belongs to Docker. Not all
// containers of Docker belong to pods.
func IsDockerShim(args []string) bool { return hasFlag(args, "-namespace", "moby") }

func hasFlag(args []string, flag, value string) bool {
	i := slices.Index(args, flag)
	return i >= 0 && i+1 < len(args) && args[i+1] == value
}

// FindCgroups returns the directories of cgroups, in each hierarchy and with all
// descendants, deepest first.
func FindCgroups(h *host.Host, names []string) []string {
	root := h.DiskPath("/sys/fs/cgroup")
	tops := []string{root}
	if !host.Exists(filepath.Join(root, "cgroup.controllers")) {
		entries, err := atomicfile.ReadDir(root)
		if err != nil {
			return nil
		}
		for _, e := range entries {
			if e.IsDir() { // "cpu" and "cpuacct" are links to one directory
				tops = append(tops, filepath.Join(root, e.Name()))
			}
		}
	}
	var out []string
	for _, top := range tops {
		for _, name := range names {
			if !filepath.IsLocal(name) {
				continue
			}
			// An unreadable directory is gone, or causes an error when it is removed.
			_ = filepath.WalkDir(filepath.Join(top, name), func(p string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					out = append(out, p)
				}
				return nil
			})
		}
	}
	slices.Reverse(out)
	return out
}

// ticks is the unit of a process's start time in the kernel, for each second: USER_HZ,
// the same on every supported architecture.
const ticks = 100

// StartedAt returns the start time of the process, by the host's current clock.
func (p Process) StartedAt() (time.Time, error) {
	count, err := strconv.ParseInt(p.start, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading when process %d was started: %w", p.PID, err)
	}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}, fmt.Errorf("reading the clock: %w", err)
	}
	ago := time.Duration(up.Nano()) - time.Duration(count)*(time.Second/ticks)
	return time.Now().Add(-ago), nil
}

// StartTime returns the start of a process, in ticks since boot: together with the PID it
// identifies a process uniquely.
func StartTime(pid int) (string, error) {
	raw, err := bounded.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"), bounded.Proc)
	if err != nil {
		return "", fmt.Errorf("reading a process's start: %w", err)
	}
	// The name, in parentheses, can contain anything.
	_, rest, _ := strings.Cut(string(raw[strings.LastIndexByte(string(raw), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return "", fmt.Errorf("reading the start time of a process: %q is too short", raw)
	}
	return fields[19], nil
}

// ContainerdSocket is the socket of the containerd that Slipway installs.
const ContainerdSocket = "/run/containerd/containerd.sock"
