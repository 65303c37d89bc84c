//go:build linux

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A host is a directory, and namespaces that exist as long as their files are
// open.
type host struct {
	Name, Address string
	Dir           string
	Lower         []string // what its files lie over, the uppermost first
	Swaps         string   // a file that covers /proc/swaps

	namespaces map[string]*os.File
}

// maxHosts is how many addresses there are.
const maxHosts = 10000

// newHost is the host with a number from 0.
func newHost(n int, dir string) host {
	name := fmt.Sprintf("h%05d", n+1)
	return host{Name: name, Address: fmt.Sprintf("10.64.%d.%d", n/250, n%250+1), Dir: filepath.Join(dir, name)}
}

// namespaceKinds are the namespaces of a host, by their names in /proc/PID/ns.
func namespaceKinds() []string { return []string{"mnt", "uts", "net"} }

// parameterFile is the file that stands for a kernel parameter.
func (h host) parameterFile(path string) string {
	return filepath.Join(h.Dir, "kernel", strings.ReplaceAll(path, "/", "."))
}

// hostFile is a host's own version of a file, once it has one.
func (h host) hostFile(path string) string { return filepath.Join(h.Dir, "upper", path) }

// populateHost writes the files of a host. A managed host has the directory for Slipway's
// helper, without a helper.
func (h host) populateHost(managed bool) error {
	files := map[string]string{
		h.hostFile("etc/hostname"):   "unprepared\n",
		h.hostFile("etc/hosts"):      "127.0.0.1 localhost\n",
		h.hostFile("etc/fstab"):      "/dev/vda1 / ext4 defaults 0 1\n/dev/vda2 none swap sw 0 0\n",
		h.hostFile("etc/machine-id"): machineID(h.Name) + "\n",
	}
	for path, value := range sharedParameters() {
		files[h.parameterFile(path)] = value + "\n"
	}
	// The last two come with systemd.
	for _, dir := range []string{"work", "root", "upper/etc/modules-load.d", "upper/etc/sysctl.d"} {
		if err := os.MkdirAll(filepath.Join(h.Dir, dir), 0o755); err != nil {
			return err
		}
	}
	for path, text := range files {
		if err := writeFile(path, text, 0o644); err != nil {
			return err
		}
	}
	if !managed {
		return nil
	}
	if err := os.MkdirAll(h.hostFile("var/lib"), 0o755); err != nil {
		return err
	}
	return os.MkdirAll(h.hostFile("var/lib/slipway/bin"), 0o700)
}

// machineID is another for every name.
func machineID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

func writeFile(path, text string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), mode)
}

// runHost turns this process into the host that text describes, reports that it is ready,
// and waits until its input ends. By then other processes have opened its namespaces.
func runHost(text string) error {
	var h host
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return err
	}
	if err := h.enterHost(); err != nil {
		return fmt.Errorf("making host %s: %w", h.Name, err)
	}
	if _, err := fmt.Println("made"); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// enterHost sets up the namespaces that this process is in.
func (h host) enterHost() error {
	root := filepath.Join(h.Dir, "root")
	if err := mountSystem(root, append([]string{h.hostFile("")}, h.Lower...), filepath.Join(h.Dir, "work")); err != nil {
		return err
	}
	if err := h.guardParameters(filepath.Join(root, "proc")); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("unprepared")); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("entering %s: %w", root, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return os.Chdir("/")
}

// mountSystem mounts what a system consists of: files over others, and what
// kernel and devices are seen through.
func mountSystem(root string, layers []string, work string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separating mounts: %w", err)
	}
	overlay := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", strings.Join(layers[1:], ":"), layers[0], work)
	mounts := []struct {
		what, on, kind string
		flags          uintptr
		data           string
	}{
		{"overlay", "", "overlay", 0, overlay},
		{"proc", "proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"sysfs", "sys", "sysfs", unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"/sys/fs/cgroup", "sys/fs/cgroup", "", unix.MS_BIND, ""}, // the names, without what is mounted below
		{"", "sys/fs/cgroup", "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY, ""},
		{"tmpfs", "dev", "tmpfs", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=755"},
		{"tmpfs", "run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
	}
	for _, m := range mounts {
		if err := unix.Mount(m.what, filepath.Join(root, m.on), m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", m.what, filepath.Join(root, m.on), err)
		}
	}
	for minor, name := range map[uint32]string{3: "null", 5: "zero", 7: "full", 8: "random", 9: "urandom"} {
		path := filepath.Join(root, "dev", name)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))); err != nil {
			return fmt.Errorf("making %s: %w", path, err)
		}
		if err := os.Chmod(path, 0o666); err != nil { // whatever the umask
			return err
		}
	}
	return nil
}

// guardParameters makes kernel parameters read-only, except parameters of the host's
// namespaces and parameters that files replace.
func (h host) guardParameters(proc string) error {
	sys := filepath.Join(proc, "sys")
	type bind struct{ what, on string }
	binds := []bind{{sys, sys}}
	for _, own := range []string{"net", "kernel/hostname"} {
		binds = append(binds, bind{filepath.Join(sys, own), filepath.Join(sys, own)})
	}
	for _, path := range slices.Sorted(maps.Keys(sharedParameters())) {
		binds = append(binds, bind{h.parameterFile(path), filepath.Join(sys, path)})
	}
	if _, err := os.Stat(filepath.Join(proc, "swaps")); err == nil {
		binds = append(binds, bind{h.Swaps, filepath.Join(proc, "swaps")})
	}
	for _, b := range binds {
		if err := unix.Mount(b.what, b.on, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("covering %s: %w", b.on, err)
		}
	}
	for _, on := range []string{sys, filepath.Join(proc, "swaps")} {
		err := unix.Mount("", on, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("making %s read-only: %w", on, err)
		}
	}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("setting up the loopback link: %w", err)
	}
	return nil
}

// missingPreparation returns the missing parts of the preparation of a host; "" if nothing
// is missing. It checks from outside, independent of the tool.
func (h host) missingPreparation() string {
	want := map[string]string{
		h.parameterFile("vm/max_map_count"):              "262144",
		h.parameterFile("fs/inotify/max_user_instances"): "8192",
		h.parameterFile("kernel/panic"):                  "10",
		h.hostFile("etc/hostname"):                       h.Name,
	}
	for path, value := range want {
		text, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(text)) != value {
			return fmt.Sprintf("%s holds %q, not %q", path, strings.TrimSpace(string(text)), value)
		}
	}
	for path, line := range map[string]string{
		"etc/hosts":                       h.Address + " " + h.Name,
		"etc/fstab":                       "/dev/vda1 / ext4",
		"etc/sysctl.d/90-slipway.conf":    "net.ipv4.ip_forward",
		"etc/modules-load.d/slipway.conf": "br_netfilter",
	} {
		text, err := os.ReadFile(h.hostFile(path))
		if err != nil || !strings.Contains("\n"+string(text), "\n"+line) {
			return fmt.Sprintf("%s lacks a line %q", path, line)
		}
	}
	fstab, err := os.ReadFile(h.hostFile("etc/fstab"))
	if err != nil || strings.Contains("\n"+string(fstab), "\n/dev/vda2 none swap") {
		return "swap is in etc/fstab"
	}
	return ""
}
