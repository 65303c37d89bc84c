//go:build linux

package executor

import (
	"bytes"
	"context"
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
	"slipway.dev/slipway/internal/node/op"
)

// process identifies a process by its PID and start time.
type process struct {
	pid    int
	parent int
	start  string
	shim   bool // keeps a container; exits after the container
}

// leaveTime is how long signalled programs can take to stop before they are killed.
const leaveTime = 5 * time.Second

// stopPods stops the units in order and ends every pod. Pods survive the unit of their
// runtime, so they are killed before it is stopped, while it still cleans up after them,
// and their shims after it.
func (s *session) stopPods(ctx context.Context, o op.Reset) error {
	for _, name := range o.Units {
		if strings.HasPrefix(name, "containerd") {
			if err := errors.Join(s.tellPods(ctx, o), s.endPods(ctx, ofPods(o), false)); err != nil {
				return err
			}
		}
		u, err := s.unit(ctx, name)
		if err != nil {
			return err
		}
		if u.running() {
			if err := s.systemctl(ctx, "stop", "--", name); err != nil {
				return err
			}
		}
	}
	return s.endPods(ctx, ofPods(o), true)
}

// ofPods are the cgroups in which all processes are killed.
func ofPods(o op.Reset) []string { return slices.Concat(o.Cgroups, o.Within) }

// tellPods signals programs in pods to stop, and waits for a short time. Nothing starts
// them again, because the kubelet is stopped.
func (s *session) tellPods(ctx context.Context, o op.Reset) error {
	told := map[process]bool{}
	for until := time.Now().Add(leaveTime); time.Now().Before(until); {
		all, err := s.podProcesses(ofPods(o))
		if err != nil {
			return err
		}
		asked := map[int]process{}
		for _, p := range all {
			if slices.Contains(o.TellFirst, p.program()) {
				asked[p.pid] = p
			}
		}
		if len(asked) == 0 {
			return nil
		}
		for _, p := range asked {
			if _, child := asked[p.parent]; child || told[p] {
				continue // its parent signals it, and would start it again
			}
			told[p] = true
			if err := p.signal(unix.SIGTERM); err != nil {
				return err
			}
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// program returns the name with which the process was started, without its directory.
func (p process) program() string {
	raw, err := bounded.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid), bounded.Proc)
	if err != nil {
		return "" // gone meanwhile
	}
	name, _, _ := strings.Cut(string(raw), "\x00")
	return filepath.Base(name)
}

// endPods kills the processes of pods, and the shims if requested, and waits until they
// are gone.
func (s *session) endPods(ctx context.Context, cgroups []string, shims bool) error {
	until := time.Now().Add(settle)
	for {
		all, err := s.podProcesses(cgroups)
		if err != nil {
			return err
		}
		if !shims {
			all = slices.DeleteFunc(all, func(p process) bool { return p.shim })
		}
		if len(all) == 0 {
			return nil
		}
		if time.Now().After(until) {
			return &op.Error{Reason: "Failed", Message: fmt.Sprintf("%d pod processes do not stop, for example process %d", len(all), all[0].pid)}
		}
		for _, p := range all {
			if err := p.signal(unix.SIGKILL); err != nil {
				return err
			}
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// signal signals the process to stop, unless its PID belongs to another process now.
func (p process) signal(how unix.Signal) error {
	if start, err := startTime(p.pid); err != nil || start != p.start {
		return nil
	}
	if err := unix.Kill(p.pid, how); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stopping process %d: %w", p.pid, err)
	}
	return nil
}

// podProcesses returns the processes of pods on this machine: the shims of the runtime's
// Kubernetes namespace with all their descendants, and the processes in the cgroups of
// pods. Machines inside this one, in separate process namespaces, are not included.
func (s *session) podProcesses(cgroups []string) ([]process, error) {
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
	children := map[int][]process{}
	var found []process
	for _, dir := range dirs {
		p, ok := readProcess(dir)
		if !ok {
			continue
		}
		p.shim = isShim(dir, here)
		if p.shim {
			found = append(found, p)
		}
		children[p.parent] = append(children[p.parent], p)
	}
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
	}
	for _, dir := range s.cgroupsNamed(cgroups) {
		raw, err := bounded.ReadFile(filepath.Join(dir, "cgroup.procs"), bounded.Proc)
		if err != nil {
			continue // gone meanwhile
		}
		for _, f := range strings.Fields(string(raw)) {
			if p, ok := readProcess("/proc/" + f); ok {
				found = append(found, p)
			}
		}
	}
	seen := map[int]bool{os.Getpid(): true, 0: true, 1: true}
	return slices.DeleteFunc(found, func(p process) bool {
		was := seen[p.pid]
		seen[p.pid] = true
		return was
	}), nil
}

// readProcess reads a process; false if it is gone or dead.
func readProcess(dir string) (p process, ok bool) {
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
	return process{pid: pid, parent: parent, start: f[19]}, err == nil
}

// isShim reports whether a process is a containerd shim for Kubernetes on this machine.
func isShim(dir, here string) bool { return ourShim(shimArgs(dir, here)) }

// shimArgs returns the arguments of a containerd or Docker shim on this machine, by its
// directory in /proc; nil for any other process.
func shimArgs(dir, here string) []string {
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

// ourShim reports, from its arguments, whether a shim belongs to Slipway's containerd and
// to Kubernetes: a host can have another containerd, or use this one for other purposes.
func ourShim(args []string) bool {
	return hasFlag(args, "-namespace", "k8s.io") && hasFlag(args, "-address", containerdSocket)
}

// dockerShim reports, from its arguments, whether a shim belongs to Docker. Not all
// containers of Docker belong to pods.
func dockerShim(args []string) bool { return hasFlag(args, "-namespace", "moby") }

func hasFlag(args []string, flag, value string) bool {
	i := slices.Index(args, flag)
	return i >= 0 && i+1 < len(args) && args[i+1] == value
}

// cgroupsNamed returns the directories of cgroups, in each hierarchy and with all
// descendants, deepest first.
func (s *session) cgroupsNamed(names []string) []string {
	root := s.path("/sys/fs/cgroup")
	tops := []string{root}
	if !exists(filepath.Join(root, "cgroup.controllers")) {
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

// removeCgroups removes the cgroups of pods. systemd stops slices; the remaining
// directories are empty and are removed one by one.
func (s *session) removeCgroups(ctx context.Context, names []string) error {
	if len(s.cgroupsNamed(names)) == 0 {
		return nil
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".slice") {
			continue
		}
		if u, err := s.unit(ctx, name); err == nil && u.active == "active" {
			if err := s.systemctl(ctx, "stop", "--", name); err != nil {
				return err
			}
		}
	}
	until := time.Now().Add(settle)
	for {
		dirs := s.cgroupsNamed(names)
		if len(dirs) == 0 {
			return nil
		}
		var last error
		for _, dir := range dirs {
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
				last = fmt.Errorf("removing cgroup %s: %w", dir, err)
			}
		}
		if last == nil {
			return nil
		}
		if time.Now().After(until) {
			return last
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
