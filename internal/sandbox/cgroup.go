package sandbox

import (
	"slices"
	"strings"
)

// A hierarchy is one cgroup tree of the host. There is one with v2, and with v1 one for
// each controller or set of controllers.
type hierarchy struct {
	// Mount is its mount directory on the host.
	Mount string `json:"mount"`
	// Options are the controllers ("cpu,cpuacct") or the name
	// ("name=systemd"); "" is v2.
	Options string `json:"options,omitempty"`
}

// dirName returns the name of the directory below /sys/fs/cgroup in a machine.
func (h hierarchy) dirName() string { return strings.TrimPrefix(h.Options, "name=") }

// mountOptions returns the options of mount(2).
func (h hierarchy) mountOptions() string {
	if strings.HasPrefix(h.Options, "name=") {
		return "none," + h.Options
	}
	return h.Options
}

// v1Controllers are the controllers of cgroups(7), in the kernel's order.
var v1Controllers = []string{
	"cpuset", "cpu", "cpuacct", "blkio", "memory", "devices", "freezer", "net_cls",
	"perf_event", "net_prio", "hugetlb", "pids", "rdma", "misc",
}

// parseHierarchies finds the cgroup trees in the text of /proc/self/mountinfo. A host
// with v1 controllers and a v2 tree without controllers (systemd's "hybrid") counts as
// v1.
func parseHierarchies(mountinfo string) []hierarchy {
	var v1, v2 []hierarchy
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		where, what := strings.Fields(left), strings.Fields(right)
		if !ok || len(where) < 5 || len(what) < 3 {
			continue
		}
		switch what[0] {
		case "cgroup2":
			v2 = addHierarchy(v2, hierarchy{Mount: where[4]})
		case "cgroup":
			v1 = addHierarchy(v1, hierarchy{Mount: where[4], Options: v1Options(what[2])})
		}
	}
	if slices.ContainsFunc(v1, func(h hierarchy) bool { return !strings.HasPrefix(h.Options, "name=") }) {
		return v1
	}
	return v2
}

// addHierarchy adds the first mount of each tree.
func addHierarchy(list []hierarchy, h hierarchy) []hierarchy {
	if slices.ContainsFunc(list, func(o hierarchy) bool { return o.Options == h.Options }) {
		return list
	}
	return append(list, h)
}

func v1Options(super string) string {
	var out []string
	for _, o := range strings.Split(super, ",") {
		if strings.HasPrefix(o, "name=") {
			return o
		}
		if slices.Contains(v1Controllers, o) {
			out = append(out, o)
		}
	}
	return strings.Join(out, ",")
}
