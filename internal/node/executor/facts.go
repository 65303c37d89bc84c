//go:build linux

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// factsOp executes op.Facts.
type factsOp struct{ o op.Facts }

// Check returns the facts of this host. Unreadable facts are left out: the prechecks
// decide about a missing fact.
func (x *factsOp) Check(ctx context.Context, s *session) (verdict, error) {
	o := x.o
	f := op.HostFacts{
		Arch: runtime.GOARCH, Kernel: s.kernelRelease(), CPUs: runtime.NumCPU(), TimeUnix: time.Now().Unix(),
		Hostname: s.text(liveHostname), MachineID: s.text("/etc/machine-id"), BootID: s.text("/proc/sys/kernel/random/boot_id"),
		OS:          parseOSRelease(s.text("/etc/os-release", "/usr/lib/os-release")),
		MemoryBytes: parseMemTotal(s.text("/proc/meminfo")),
		SELinux:     s.selinux(), ResourceCapability: mayRaiseLimits(s.text("/proc/self/status")),
	}
	unreached := s.reach(ctx, o.Reach)
	f.CgroupVersion, f.CgroupControllers = s.cgroups()
	for _, a := range parseSwaps([]byte(s.text("/proc/swaps"))) {
		f.Swap = append(f.Swap, a.Device)
	}
	if s.text("/proc/1/comm") == "systemd" {
		f.Systemd = s.systemdVersion(ctx)
		f.Firewall = s.firewalls(ctx)
	}
	f.Resolver = s.resolver(ctx)
	f.Named = parseHosts(s.text("/etc/hosts"), o.Names)
	for _, name := range []string{"overlay", "br_netfilter", "nf_tables", "ip_tables", "vxlan", "ipvs"} {
		if s.hasFeature(name) {
			f.KernelFeatures = append(f.KernelFeatures, name)
		}
	}
	f.Links, f.Addresses = links()
	f.Routes = append(parseRoutes(s.text("/proc/net/route")), parseRoutes6(s.text("/proc/net/ipv6_route"))...)
	f.Listeners = s.listeners(o.Ports)
	for _, p := range o.Paths {
		found, err := filepath.Glob(s.path(p))
		if err != nil {
			return verdict{}, invalid("pattern %q: %v", p, err)
		}
		if slices.ContainsFunc(found, func(m string) bool { return !empty(m) }) {
			f.Present = append(f.Present, p)
		}
	}
	mounts := ledger.MountPoints([]byte(s.text("/proc/thread-self/mountinfo")))
	for _, dir := range o.Dirs {
		if d, ok := s.diskOf(dir, mounts); ok {
			f.Disks = append(f.Disks, d)
		}
	}
	for _, dir := range o.Contents {
		if full, err := s.holds(dir); err == nil && full {
			f.Filled = append(f.Filled, dir)
		}
	}
	f.Units = s.unitFacts(ctx, o.Units)
	// An unreadable ledger still exists.
	_, err := os.Lstat(s.state(ledger.Dir))
	f.Ledger = !errors.Is(err, fs.ErrNotExist)
	if l, err := ledger.Open(s.State, s.Root, s.Runner.disk, ledger.Owner{}); err == nil {
		f.Cluster = l.Cluster()
	}
	f.Unreached = unreached()
	raw, err := json.Marshal(f)
	if err != nil {
		return verdict{}, fmt.Errorf("encoding facts: %w", err)
	}
	return verdict{output: raw}, ctx.Err()
}

// reach starts connections to addresses; the returned function waits, and returns the
// addresses that accept none.
func (s *session) reach(ctx context.Context, addresses []string) func() []string {
	failed := make([]bool, len(addresses))
	var wg sync.WaitGroup
	for i, address := range addresses {
		wg.Go(func() { failed[i] = s.probe(ctx, op.Wait{TCP: address}) != nil })
	}
	return func() (out []string) {
		wg.Wait()
		for i, address := range addresses {
			if failed[i] {
				out = append(out, address)
			}
		}
		return out
	}
}

// text returns the content of the first readable file, trimmed.
func (s *session) text(paths ...string) string {
	for _, p := range paths {
		if raw, err := atomicfile.ReadFile(s.path(p), bounded.Config); err == nil {
			return strings.TrimSpace(string(raw))
		}
	}
	return ""
}

// parseOSRelease reads os-release(5).
func parseOSRelease(text string) op.OS {
	v := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(key, "#") {
			v[key] = unquote(value)
		}
	}
	return op.OS{ID: v["ID"], Version: v["VERSION_ID"], Name: v["PRETTY_NAME"], Like: strings.Fields(v["ID_LIKE"])}
}

// unquote removes a shell's quotes as far as os-release(5) allows them.
func unquote(s string) string {
	if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '"' && s[0] != '\'' {
		return s
	}
	body := s[1 : len(s)-1]
	if s[0] == '\'' {
		return body
	}
	var b strings.Builder
	for i := 0; i < len(body); i++ {
		if body[i] == '\\' && i+1 < len(body) {
			i++
		}
		b.WriteByte(body[i])
	}
	return b.String()
}

func parseMemTotal(meminfo string) uint64 {
	for line := range strings.Lines(meminfo) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			kib, err := strconv.ParseUint(f[1], 10, 53)
			if err == nil {
				return kib << 10
			}
		}
	}
	return 0
}

func (s *session) selinux() string {
	switch s.text("/sys/fs/selinux/enforce") {
	case "1":
		return "enforcing"
	case "0":
		return "permissive"
	}
	return "disabled"
}

// mayRaiseLimits looks for CAP_SYS_RESOURCE in /proc/self/status.
func mayRaiseLimits(status string) bool {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return err == nil && set&(1<<unix.CAP_SYS_RESOURCE) != 0
		}
	}
	return false
}

// cgroups returns the version in use and the available controllers.
func (s *session) cgroups() (int, []string) {
	if exists(s.path("/sys/fs/cgroup/cgroup.controllers")) {
		return 2, strings.Fields(s.text("/sys/fs/cgroup/cgroup.controllers"))
	}
	entries, err := atomicfile.ReadDir(s.path("/sys/fs/cgroup"))
	if err != nil {
		return 0, nil
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != "systemd" && e.Name() != "unified" {
			out = append(out, strings.Split(e.Name(), ",")...)
		}
	}
	slices.Sort(out)
	return 1, slices.Compact(out)
}

func (s *session) systemdVersion(ctx context.Context) string {
	out, err := s.output(ctx, "systemctl", "--version")
	if f := strings.Fields(out); err == nil && len(f) >= 2 {
		return f[1] // "systemd 252 (252.39-1~deb12u1)"
	}
	return ""
}

// hasFeature reports whether the kernel has a feature now, or a module for it.
func (s *session) hasFeature(name string) bool {
	module := name
	if name == "ipvs" {
		module = "ip_vs"
	}
	if s.hasModule(module) {
		return true
	}
	raw, err := atomicfile.ReadFile(s.path("/lib/modules/"+s.kernelRelease()+"/modules.dep"), bounded.Config)
	if err == nil && inDep(raw, module) {
		return true
	}
	switch name {
	case "nf_tables":
		return hasNFTables()
	case "vxlan":
		return strings.Contains(s.text("/proc/kallsyms"), "vxlan_")
	case "ip_tables":
		return exists(s.path("/proc/net/ip_tables_names"))
	}
	return false
}

// inDep looks a module up in modules.dep: "kernel/net/ipv4/x.ko.xz: …".
func inDep(raw []byte, name string) bool {
	for line := range strings.Lines(string(raw)) {
		file, _, _ := strings.Cut(line, ":")
		base, _, ok := strings.Cut(filepath.Base(file), ".ko")
		if ok && strings.ReplaceAll(base, "-", "_") == name {
			return true
		}
	}
	return false
}

// links returns the names of the network links, and their addresses.
func links() (names []string, out []op.Address) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, nil
	}
	for _, l := range all {
		names = append(names, l.Name)
		addrs, err := l.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			out = append(out, op.Address{Link: l.Name, Prefix: a.String()})
		}
	}
	slices.Sort(names)
	return names, out
}

// mountOf returns the mount point of a path: the longest match.
func mountOf(points []string, path string) string {
	best := ""
	for _, m := range points {
		if (path == m || strings.HasPrefix(path, strings.TrimSuffix(m, "/")+"/")) && len(m) >= len(best) {
			best = m
		}
	}
	return best
}

// diskOf returns the file system that has a directory, or would have it.
func (s *session) diskOf(dir string, mounts []string) (op.Disk, bool) {
	p := s.path(dir)
	for {
		var st unix.Statfs_t
		err := unix.Statfs(p, &st)
		if err == nil {
			if real, err := filepath.EvalSymlinks(p); err == nil {
				p = real
			}
			size := uint64(st.Bsize)
			return op.Disk{
				Dir: dir, FS: fsName(st.Type), Mount: mountOf(mounts, p),
				TotalBytes: st.Blocks * size, FreeBytes: st.Bavail * size, Inodes: st.Files, FreeInodes: st.Ffree,
				NoExec: st.Flags&unix.ST_NOEXEC != 0, ReadOnly: st.Flags&unix.ST_RDONLY != 0,
			}, true
		}
		if !errors.Is(err, fs.ErrNotExist) || p == filepath.Dir(p) {
			return op.Disk{}, false
		}
		p = filepath.Dir(p)
	}
}

// fsName names the file systems that are relevant for container runtimes.
func fsName(magic int64) string {
	names := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "nfs",
		0x2fc12fc1: "zfs", unix.F2FS_SUPER_MAGIC: "f2fs", unix.RAMFS_MAGIC: "ramfs",
	}
	if n, ok := names[magic]; ok {
		return n
	}
	return fmt.Sprintf("0x%x", magic)
}
