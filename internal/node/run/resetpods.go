//go:build linux

package run

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
	"slipway.dev/slipway/internal/node/durable"
	"slipway.dev/slipway/internal/node/op"
)

// process is a process by its number and the time it was started.
type process struct {
	pid    int
	parent int
	start  string
	shim   bool // keeps a container; ends when that has ended
}

// leaveTime is what programs have that are told to end before they are killed.
const leaveTime = 5 * time.Second

// stopPods stops the units in order and ends every pod. Pods survive the
// unit of their runtime, so they are ended before it is stopped, while it
// still cleans up after them, and their shims after it.
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

// ofPods are the cgroups in which everything ends.
func ofPods(o op.Reset) []string { return slices.Concat(o.Cgroups, o.Within) }

// tellPods has programs in pods end by themselves, and waits for that a little.
// Nobody starts them anew: the kubelet is stopped.
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
				continue // its parent tells it, and would start it anew
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

// program is the name that the process was called by, without its directory.
func (p process) program() string {
	raw, err := bounded.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid), bounded.Proc)
	if err != nil {
		return "" // gone meanwhile
	}
	name, _, _ := strings.Cut(string(raw), "\x00")
	return filepath.Base(name)
}

// endPods kills the processes of pods, and the shims if asked for, and waits
// until they are gone.
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

// signal tells the process to end, unless its number is another's by now.
func (p process) signal(how unix.Signal) error {
	if start, err := startTime(p.pid); err != nil || start != p.start {
		return nil
	}
	if err := unix.Kill(p.pid, how); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stopping process %d: %w", p.pid, err)
	}
	return nil
}

// podProcesses answers the processes of pods on this machine: the shims of
// our runtime's Kubernetes namespace with all below them, and what is in the
// cgroups of pods. Machines that live inside this one, in process namespaces
// of their own, are left alone.
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

// isShim says that a process is a shim of containerd for Kubernetes, and of
// this machine.
func isShim(dir, here string) bool { return ourShim(shimArgs(dir, here)) }

// shimArgs returns the arguments of a shim of containerd or Docker that runs on this
// machine, by its directory in /proc; nil for any other process.
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

// ourShim says by its arguments that a shim is of our containerd, and for
// Kubernetes: a host may have another containerd, or another use for this one.
func ourShim(args []string) bool {
	return hasFlag(args, "-namespace", "k8s.io") && hasFlag(args, "-address", containerdSocket)
}

// dockerShim reports whether a shim is of Docker, by its arguments. Not all containers of
// Docker are of pods.
func dockerShim(args []string) bool { return hasFlag(args, "-namespace", "moby") }

func hasFlag(args []string, flag, value string) bool {
	i := slices.Index(args, flag)
	return i >= 0 && i+1 < len(args) && args[i+1] == value
}

// cgroupsNamed answers the directories of cgroups, in each hierarchy and with
// all below them, deepest first.
func (s *session) cgroupsNamed(names []string) []string {
	root := s.path("/sys/fs/cgroup")
	tops := []string{root}
	if !exists(filepath.Join(root, "cgroup.controllers")) {
		entries, err := durable.ReadDir(root)
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
			// What cannot be read is gone, or is met again when removed.
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

// removeCgroups removes the cgroups of pods. Slices are systemd's to stop;
// what is left after that is empty and goes directory by directory.
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
