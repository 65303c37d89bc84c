//go:build linux

package facts

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
	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/netfilter"
	"slipway.dev/slipway/internal/node/executor/system"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// ReadOp executes op.Facts.
type ReadOp struct{ Op op.Facts }

// Check returns the facts of this host. Unreadable facts are left out: the prechecks
// decide about a missing fact.
func (x *ReadOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	f := op.HostFacts{
		Arch: runtime.GOARCH, Kernel: system.KernelRelease(h), CPUs: runtime.NumCPU(), TimeUnix: time.Now().Unix(),
		Hostname: h.ReadText(system.LiveHostname), MachineID: h.ReadText("/etc/machine-id"),
		BootID:      h.ReadText("/proc/sys/kernel/random/boot_id"),
		OS:          ParseOSRelease(h.ReadText("/etc/os-release", "/usr/lib/os-release")),
		MemoryBytes: ParseMemTotal(h.ReadText("/proc/meminfo")),
		SELinux:     selinuxMode(h), ResourceCapability: system.MayRaiseLimits(h.ReadText("/proc/self/status")),
	}
	unreached := reachableAddresses(ctx, h, o.Reach)
	f.CgroupVersion, f.CgroupControllers = cgroupVersion(h)
	for _, a := range system.ParseSwaps([]byte(h.ReadText("/proc/swaps"))) {
		f.Swap = append(f.Swap, a.Device)
	}
	if h.ReadText("/proc/1/comm") == "systemd" {
		f.Systemd = systemdVersion(ctx, h)
		f.Firewall = activeFirewalls(ctx, h)
	}
	f.Resolver = readResolver(ctx, h)
	f.Named = ParseHosts(h.ReadText("/etc/hosts"), o.Names)
	for _, name := range []string{"overlay", "br_netfilter", "nf_tables", "ip_tables", "vxlan", "ipvs"} {
		if hasFeature(h, name) {
			f.KernelFeatures = append(f.KernelFeatures, name)
		}
	}
	f.Links, f.Addresses = linkNames()
	f.Routes = append(ParseRoutes(h.ReadText("/proc/net/route")), ParseRoutes6(h.ReadText("/proc/net/ipv6_route"))...)
	f.Listeners = findListeners(h, o.Ports)
	for _, p := range o.Paths {
		found, err := filepath.Glob(h.DiskPath(p))
		if err != nil {
			return host.CheckResult{}, host.Invalid("pattern %q: %v", p, err)
		}
		if slices.ContainsFunc(found, func(m string) bool { return !host.IsEmptyFile(m) }) {
			f.Present = append(f.Present, p)
		}
	}
	mounts := ledger.MountPoints([]byte(h.ReadText("/proc/thread-self/mountinfo")))
	for _, dir := range o.Dirs {
		if d, ok := diskOf(h, dir, mounts); ok {
			f.Disks = append(f.Disks, d)
		}
	}
	for _, dir := range o.Contents {
		if full, err := hasContent(h, dir); err == nil && full {
			f.Filled = append(f.Filled, dir)
		}
	}
	f.Units = unitFacts(ctx, h, o.Units)
	// An unreadable ledger still exists.
	_, err := os.Lstat(h.StatePath(ledger.Dir))
	f.Ledger = !errors.Is(err, fs.ErrNotExist)
	if l, err := ledger.Open(h.State, h.Root, h.Disk, ledger.Owner{}); err == nil {
		f.Cluster = l.ClusterName()
	}
	f.Unreached = unreached()
	raw, err := json.Marshal(f)
	if err != nil {
		return host.CheckResult{}, fmt.Errorf("encoding facts: %w", err)
	}
	return host.CheckResult{Output: raw}, ctx.Err()
}

// reachableAddresses starts connections to addresses; the returned function waits, and
// returns the addresses that accept none.
func reachableAddresses(ctx context.Context, h *host.Host, addresses []string) func() []string {
	failed := make([]bool, len(addresses))
	var wg sync.WaitGroup
	for i, address := range addresses {
		wg.Go(func() { failed[i] = health.ProbeCondition(ctx, h, op.Wait{TCP: address}) != nil })
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

// ParseOSRelease reads os-release(5).
func ParseOSRelease(text string) op.OS {
	v := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(key, "#") {
			v[key] = unquoteValue(value)
		}
	}
	return op.OS{ID: v["ID"], Version: v["VERSION_ID"], Name: v["PRETTY_NAME"], Like: strings.Fields(v["ID_LIKE"])}
}

// unquoteValue removes a shell's quotes as far as os-release(5) allows them.
func unquoteValue(s string) string {
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

// ParseMemTotal returns the memory of the host in bytes.
func ParseMemTotal(meminfo string) uint64 {
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

func selinuxMode(h *host.Host) string {
	switch h.ReadText("/sys/fs/selinux/enforce") {
	case "1":
		return "enforcing"
	case "0":
		return "permissive"
	}
	return "disabled"
}

// cgroupVersion returns the version in use and the available controllers.
func cgroupVersion(h *host.Host) (int, []string) {
	if host.Exists(h.DiskPath("/sys/fs/cgroup/cgroup.controllers")) {
		return 2, strings.Fields(h.ReadText("/sys/fs/cgroup/cgroup.controllers"))
	}
	entries, err := atomicfile.ReadDir(h.DiskPath("/sys/fs/cgroup"))
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

func systemdVersion(ctx context.Context, h *host.Host) string {
	out, err := h.Output(ctx, "systemctl", "--version")
	if f := strings.Fields(out); err == nil && len(f) >= 2 {
		return f[1] // "systemd 252 (252.39-1~deb12u1)"
	}
	return ""
}

// hasFeature reports whether the kernel has a feature now, or a module for it.
func hasFeature(h *host.Host, name string) bool {
	module := name
	if name == "ipvs" {
		module = "ip_vs"
	}
	if system.HasModule(h, module) {
		return true
	}
	raw, err := atomicfile.ReadFile(h.DiskPath("/lib/modules/"+system.KernelRelease(h)+"/modules.dep"), bounded.Config)
	if err == nil && IsInDep(raw, module) {
		return true
	}
	switch name {
	case "nf_tables":
		return netfilter.HasNFTables()
	case "vxlan":
		return strings.Contains(h.ReadText("/proc/kallsyms"), "vxlan_")
	case "ip_tables":
		return host.Exists(h.DiskPath("/proc/net/ip_tables_names"))
	}
	return false
}

// IsInDep looks a module up in modules.dep: "kernel/net/ipv4/x.ko.xz: …".
func IsInDep(raw []byte, name string) bool {
	for line := range strings.Lines(string(raw)) {
		file, _, _ := strings.Cut(line, ":")
		base, _, ok := strings.Cut(filepath.Base(file), ".ko")
		if ok && strings.ReplaceAll(base, "-", "_") == name {
			return true
		}
	}
	return false
}

// linkNames returns the names of the network links, and their addresses.
func linkNames() (names []string, out []op.Address) {
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
func diskOf(h *host.Host, dir string, mounts []string) (op.Disk, bool) {
	p := h.DiskPath(dir)
	for {
		var st unix.Statfs_t
		err := unix.Statfs(p, &st)
		if err == nil {
			if real, err := filepath.EvalSymlinks(p); err == nil {
				p = real
			}
			size := uint64(st.Bsize)
			return op.Disk{
				Dir: dir, FS: host.FsName(st.Type), Mount: mountOf(mounts, p),
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
