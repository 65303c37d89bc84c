//go:build e2e

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// writeSnapshot describes the machine that this program runs in.
func writeSnapshot(w io.Writer, files bool) error {
	s := snapshot{}
	var errs []error
	if files {
		errs = append(errs, s.addFiles("/"))
	}
	errs = append(errs, s.addSysctls(), s.addMounts(), s.addLinks(), s.addCgroups(), s.addNames("netns", "/run/netns"),
		s.addNames("module", "/sys/module"), s.addSwaps(), s.addProcesses(), s.addFilter())
	s.addPrograms()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(s)
}

// virtual file systems hold state of the kernel or of one boot.
var virtual = map[int64]bool{
	unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.CGROUP_SUPER_MAGIC: true, unix.CGROUP2_SUPER_MAGIC: true,
	unix.DEVPTS_SUPER_MAGIC: true, unix.BPF_FS_MAGIC: true, unix.DEBUGFS_MAGIC: true, unix.TRACEFS_MAGIC: true,
	unix.NSFS_MAGIC: true, unix.SECURITYFS_MAGIC: true,
}

// addFiles describes everything below root but for virtual file systems and
// /dev.
func (s snapshot) addFiles(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone while we looked
		}
		if err != nil {
			return err
		}
		if d.IsDir() {
			var st unix.Statfs_t
			if err := unix.Statfs(path, &st); err == nil && virtual[st.Type] || path == "/dev" {
				return fs.SkipDir
			}
		}
		e, err := describeFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		// Names that contain a time are distinguished by their order.
		name := "file " + withoutTime(path)
		for n := 2; s[name] != (entry{}); n++ {
			name = fmt.Sprintf("file %s#%d", withoutTime(path), n)
		}
		s[name] = e
		return nil
	})
}

// describeFile returns a file's type, mode, owner, link target and extended attributes,
// and the digest of its content.
func describeFile(path string) (entry, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return entry{}, err
	}
	st := info.Sys().(*syscall.Stat_t)
	e := entry{Meta: fmt.Sprintf("%s %d:%d%s", info.Mode(), st.Uid, st.Gid, readXattrs(path))}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		e.Content, err = os.Readlink(path)
		if t := withoutTime(e.Content); t != e.Content {
			e.About = t
		}
	case info.Mode().IsRegular():
		if e.Content, err = digestFile(path); errors.Is(err, unix.EINVAL) {
			err = nil // a namespace, mounted as a file
		}
		if err == nil && hasMeaning(path) {
			var content []byte
			content, err = os.ReadFile(path)
			e.About = describeContent(path, content)
		}
	case info.Mode()&fs.ModeDevice != 0:
		e.Content = fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	}
	return e, err
}

func digestFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %s", n, hex.EncodeToString(h.Sum(nil))[:24]), nil
}

func readXattrs(path string) string {
	buf := make([]byte, 4096)
	n, err := unix.Llistxattr(path, buf)
	if err != nil || n == 0 {
		return ""
	}
	names := strings.Split(strings.TrimRight(string(buf[:n]), "\x00"), "\x00")
	slices.Sort(names)
	var out strings.Builder
	for _, name := range names {
		value := make([]byte, 4096)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			continue
		}
		fmt.Fprintf(&out, " %s=%x", name, value[:n])
	}
	return out.String()
}

// sysctlTrees are the kernel parameters that Kubernetes, its network and its
// tools change. Counters and random values are not among them.
var sysctlTrees = []string{
	"net/ipv4/ip_forward", "net/ipv4/conf/all", "net/ipv4/conf/default", "net/ipv6/conf/all", "net/ipv6/conf/default",
	"net/ipv4/neigh/default", "net/bridge", "net/core/somaxconn", "net/netfilter/nf_conntrack_max",
	"net/netfilter/nf_conntrack_tcp_timeout_close_wait", "net/netfilter/nf_conntrack_tcp_timeout_established",
	"net/ipv4/vs", "net/ipv4/ip_local_reserved_ports", "net/ipv4/ip_nonlocal_bind",
	"fs/inotify", "fs/file-max", "fs/nr_open", "vm/overcommit_memory", "vm/panic_on_oom", "vm/swappiness",
	"vm/max_map_count", "kernel/panic", "kernel/panic_on_oops", "kernel/pid_max", "kernel/keys",
}

func (s snapshot) addSysctls() error {
	for _, tree := range sysctlTrees {
		err := filepath.WalkDir("/proc/sys/"+tree, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || d.IsDir() {
				return err
			}
			value, err := os.ReadFile(path)
			if err != nil {
				return nil // write-only, or not for this namespace
			}
			name := strings.ReplaceAll(strings.TrimPrefix(path, "/proc/sys/"), "/", ".")
			s["sysctl "+name] = entry{Content: strings.TrimSpace(string(value))}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s snapshot) addMounts() error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		// id parent major:minor root mountpoint options … - type source …
		before, after, _ := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if len(f) > 5 && len(g) > 0 {
			s["mount "+f[4]] = entry{Meta: g[0] + " " + f[5]}
		}
	}
	return nil
}

func (s snapshot) addLinks() error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, l := range links {
		addresses, err := l.Addrs()
		if err != nil {
			return err
		}
		var texts []string
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsLinkLocalUnicast() {
				continue
			}
			texts = append(texts, a.String())
		}
		s["link "+l.Name] = entry{Meta: fmt.Sprintf("mtu %d", l.MTU), Content: strings.Join(texts, " ")}
	}
	return nil
}

// addCgroups describes the groups a container runtime would leave: three
// levels deep.
func (s snapshot) addCgroups() error {
	const root = "/sys/fs/cgroup"
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		rel := strings.TrimPrefix(path, root)
		if strings.Count(rel, "/") > 3 {
			return fs.SkipDir
		}
		s["cgroup "+rel] = entry{}
		return nil
	})
}

// addNames describes a directory by the names in it alone.
func (s snapshot) addNames(kind, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		s[kind+" "+e.Name()] = entry{}
	}
	return nil
}

func (s snapshot) addSwaps() error {
	data, err := os.ReadFile("/proc/swaps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); f[0] != "Filename" {
			s["swap "+f[0]] = entry{}
		}
	}
	return nil
}

// addProcesses describes the running processes, by program.
func (s snapshot) addProcesses() error {
	stats, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err
	}
	for _, path := range stats {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if _, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil || pid == os.Getpid() {
			continue // a kernel thread, or us
		}
		if name, err := os.ReadFile(path); err == nil {
			s["process "+strings.TrimSpace(string(name))] = entry{}
		}
	}
	return nil
}

// Counters of packets and handles differ at every look.
var counters = regexp.MustCompile(`counter packets \d+ bytes \d+|\[\d+:\d+\]|# handle \d+|expires \w+`)

// addPrograms describes what only programs can tell. One that is missing
// has nothing to tell.
func (s snapshot) addPrograms() {
	for _, p := range []struct {
		name string
		argv []string
	}{
		{"units", []string{"systemctl", "list-unit-files", "--no-legend", "--no-pager", "--plain"}},
		{"running", []string{"systemctl", "list-units", "--type=service", "--state=running,failed", "--no-legend", "--no-pager", "--plain"}},
		{"nft", []string{"nft", "list", "ruleset"}},
		{"iptables", []string{"iptables-save"}},
		{"ip6tables", []string{"ip6tables-save"}},
		{"routes", []string{"ip", "route", "show", "table", "all"}},
		{"rules", []string{"ip", "rule"}},
		{"hostname", []string{"hostname"}},
	} {
		out, err := exec.Command(p.argv[0], p.argv[1:]...).Output()
		if err != nil {
			continue
		}
		for line := range bytes.Lines(counters.ReplaceAll(out, nil)) {
			text := strings.Join(strings.Fields(string(line)), " ")
			if text != "" && !strings.HasPrefix(text, "#") {
				s[p.name+" "+text] = entry{}
			}
		}
	}
}
