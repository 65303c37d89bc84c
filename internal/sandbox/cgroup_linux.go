package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// supervisorCgroup is next to the cgroups of the machines: a supervisor ends neither with
// the session that started it nor with its machine.
const supervisorCgroup = ".supervisor"

// cgroups is a sandbox's subtree in every cgroup tree of the host.
type cgroups struct {
	hierarchies []hierarchy
	name        string // of the subtree
}

func findCgroups(id string) (cgroups, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return cgroups{}, err
	}
	c := cgroups{hierarchies: parseHierarchies(string(b)), name: "slipway-" + id}
	if len(c.hierarchies) == 0 {
		return cgroups{}, refuseWith(IDNoCgroups, "no cgroup tree is mounted on this host",
			"mount -t cgroup2 cgroup2 /sys/fs/cgroup")
	}
	named := slices.ContainsFunc(c.hierarchies, func(h hierarchy) bool { return h.Options == "name=systemd" })
	if !c.isV2() && !named {
		return cgroups{}, refuseWith(IDNoCgroups, "cgroup v1 without the tree that systemd needs",
			"mkdir /sys/fs/cgroup/systemd && mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd")
	}
	return c, nil
}

func (c cgroups) isV2() bool { return c.hierarchies[0].Options == "" }

// joinPart creates a part of the subtree and moves a process there, with all its threads.
func (c cgroups) joinPart(part string, pid int) error {
	for _, h := range c.hierarchies {
		dir := filepath.Join(h.Mount, c.name)
		if err := c.makeDir(h.Mount, dir); err != nil {
			return err
		}
		if err := c.makeDir(dir, filepath.Join(dir, part)); err != nil {
			return err
		}
		procs := filepath.Join(dir, part, "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("joining a cgroup: %w", err)
		}
	}
	return nil
}

// makeDir creates a cgroup that processes can join, with its controllers enabled.
func (c cgroups) makeDir(parent, dir string) error {
	if c.isV2() {
		if err := enableControllers(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("creating a cgroup: %w", err)
	}
	// A new cpuset of v1 is empty, and no process can join it.
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		b, err := os.ReadFile(filepath.Join(parent, f))
		if c.isV2() || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f), b, 0)
		}
		if err != nil {
			return fmt.Errorf("creating a cgroup: %w", err)
		}
	}
	return nil
}

// enableControllers enables all controllers of a v2 cgroup for its children.
func enableControllers(dir string) error {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "cgroup.subtree_control")
	on, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(have)) {
		if slices.Contains(strings.Fields(string(on)), name) {
			continue
		}
		if err := os.WriteFile(file, []byte("+"+name), 0); err != nil {
			return fmt.Errorf("enabling cgroup controller %s: %w", name, err)
		}
	}
	return nil
}

// listProcesses returns all processes in a part of the subtree; "" is the whole subtree.
func (c cgroups) listProcesses(part string) []int {
	var pids []int
	for _, h := range c.hierarchies {
		for _, dir := range listSubtree(filepath.Join(h.Mount, c.name, part)) {
			b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			if err != nil {
				continue // removed meanwhile
			}
			for _, f := range strings.Fields(string(b)) {
				if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// thawProcesses resumes the frozen processes of a part; "" is the whole subtree. A container runtime freezes containers,
// and in v1 a frozen process does not end when it is killed.
func (c cgroups) thawProcesses(part string) {
	for _, h := range c.hierarchies {
		if !slices.Contains(strings.Split(h.Options, ","), "freezer") {
			continue
		}
		for _, dir := range listSubtree(filepath.Join(h.Mount, c.name, part)) {
			_ = os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0) // it may have been removed meanwhile
		}
	}
}

// removePart removes the empty cgroups of a part; "" is the whole subtree.
func (c cgroups) removePart(part string) error {
	var errs []error
	for _, h := range c.hierarchies {
		dirs := listSubtree(filepath.Join(h.Mount, c.name, part))
		slices.Reverse(dirs)
		for _, d := range dirs {
			if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// listSubtree lists a directory and its descendants, parents first. Directories that
// disappear meanwhile are left out.
func listSubtree(root string) []string {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	dirs := []string{root}
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, listSubtree(filepath.Join(root, e.Name()))...)
		}
	}
	return dirs
}

// holdsProcess reports whether a process is in a part of the subtree, in any tree.
func (c cgroups) holdsProcess(part string, pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return false
	}
	want := "/" + filepath.Join(c.name, part)
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (f[2] == want || strings.HasPrefix(f[2], want+"/")) {
			return true
		}
	}
	return false
}
