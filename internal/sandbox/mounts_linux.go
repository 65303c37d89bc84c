package sandbox

import (
	"compress/gzip"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mountSystem mounts the file systems of a machine, below its root.
func mountSystem(c bootConfig) error {
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"sys", func() error { return mountSys(c.Root) }},
		{"cgroups", func() error { return mountCgroups(c.Root, c.Hierarchies) }},
		{"dev", func() error { return mountDev(filepath.Join(c.Root, "dev")) }},
		{"run", func() error {
			return mountAt("tmpfs", filepath.Join(c.Root, "run"), unix.MS_NOSUID|unix.MS_NODEV, "mode=755")
		}},
		{"proc", func() error { return mountProc(c) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("mounting %s: %w", step.what, err)
		}
	}
	return nil
}

func mountAt(kind, dir string, flags uintptr, options string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(kind, dir, kind, flags, options); err != nil {
		return &fs.PathError{Op: "mount " + kind, Path: dir, Err: err}
	}
	return nil
}

func bindMount(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return &fs.PathError{Op: "bind " + from, Path: to, Err: err}
	}
	return nil
}

func bindReadOnly(from, to string) error {
	if err := bindMount(from, to); err != nil {
		return err
	}
	return unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// mountSys mounts /sys with the machine's own network, and prevents it from suspending
// the host.
func mountSys(root string) error {
	sys := filepath.Join(root, "sys")
	if err := mountAt("sysfs", sys, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	power := filepath.Join(sys, "power")
	if _, err := os.Stat(power); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return bindReadOnly(power, power)
}

// mountCgroups enters a cgroup namespace, in which the machine's part of each tree is the
// whole tree. With v1 the directory above is finally made read-only, because systemd
// would mount more trees there.
func mountCgroups(root string, hierarchies []hierarchy) error {
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return err
	}
	top := filepath.Join(root, "sys/fs/cgroup")
	if hierarchies[0].Options == "" {
		return mountAt("cgroup2", top, 0, "")
	}
	if err := mountAt("tmpfs", top, 0, "mode=755"); err != nil {
		return err
	}
	for _, h := range hierarchies {
		if err := mountAt("cgroup", filepath.Join(top, h.dirName()), 0, h.mountOptions()); err != nil {
			return err
		}
		if strings.Contains(h.dirName(), ",") {
			for name := range strings.SplitSeq(h.dirName(), ",") {
				if err := os.Symlink(h.dirName(), filepath.Join(top, name)); err != nil {
					return err
				}
			}
		}
	}
	return unix.Mount("", top, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// mountDev creates the few devices of a machine without hardware.
func mountDev(dev string) error {
	if err := mountAt("tmpfs", dev, unix.MS_NOSUID, "mode=755"); err != nil {
		return err
	}
	old := unix.Umask(0)
	defer unix.Umask(old)
	for _, d := range []struct {
		name         string
		major, minor uint32
	}{
		{"null", 1, 3},
		{"zero", 1, 5},
		{"full", 1, 7},
		{"random", 1, 8},
		{"urandom", 1, 9},
		{"tty", 5, 0},
		{"kmsg", 1, 11},
		{"fuse", 10, 229},
		{"net/tun", 10, 200},
	} {
		path := filepath.Join(dev, d.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return err
		}
	}
	for name, to := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd",
		"stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(to, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	return errors.Join(
		mountAt("devpts", filepath.Join(dev, "pts"), unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5"),
		mountAt("tmpfs", filepath.Join(dev, "shm"), unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"),
		mountAt("mqueue", filepath.Join(dev, "mqueue"), unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""),
	)
}

// mountProc mounts /proc so that a machine has its own kernel settings: settings of a
// namespace are real, the others are copies that can be written and read, so that the
// writes of a kubelet do not change the host.
func mountProc(c bootConfig) error {
	proc := filepath.Join(c.Root, "proc")
	if err := mountAt("proc", proc, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	sys := filepath.Join(proc, "sys")
	if err := bindReadOnly(sys, sys); err != nil {
		return err
	}
	network := filepath.Join(sys, "net")
	if err := bindMount(network, network); err != nil {
		return err
	}
	// A bind mount inherits read-only.
	if err := unix.Mount("", network, "", unix.MS_BIND|unix.MS_REMOUNT, ""); err != nil {
		return err
	}
	for _, name := range []string{"vm", "kernel", "fs"} {
		if err := copySettings("/proc/sys", sys, name); err != nil {
			return fmt.Errorf("copying kernel settings: %w", err)
		}
	}
	trigger := filepath.Join(proc, "sysrq-trigger")
	if _, err := os.Stat(trigger); err == nil {
		if err := bindReadOnly(filepath.Join(c.Root, "dev/null"), trigger); err != nil {
			return err
		}
	}
	// A kubelet uses the firmware's ID as the ID of the machine.
	product := filepath.Join(c.Root, "sys/class/dmi/id/product_uuid")
	if _, err := os.Stat(product); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	file := filepath.Join(c.Root, "run/product_uuid")
	if err := writeFile(file, []byte(formatUUID(c.MachineID)+"\n"), 0o444); err != nil {
		return err
	}
	return bindMount(file, product)
}

// realSettings are the settings below vm, kernel and fs that belong to a namespace of the
// machine, or that are only informative.
var realSettings = []string{
	"kernel/hostname", "kernel/domainname", "kernel/ns_last_pid", "kernel/random/uuid",
	"kernel/random/entropy_avail", "kernel/pty/nr",
	"kernel/shmmax", "kernel/shmall", "kernel/shmmni", "kernel/msgmax", "kernel/msgmnb", "kernel/msgmni", "kernel/sem",
	"fs/file-nr", "fs/inode-nr", "fs/inode-state", "fs/dentry-state",
	"fs/mqueue/msg_default", "fs/mqueue/msg_max", "fs/mqueue/msgsize_default", "fs/mqueue/msgsize_max", "fs/mqueue/queues_max",
}

func copySettings(from, to, name string) error {
	top := filepath.Join(to, name)
	if err := unix.Mount("tmpfs", top, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=555"); err != nil {
		return err
	}
	return filepath.WalkDir(filepath.Join(from, name), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case rel == "fs/binfmt_misc":
			return fs.SkipDir
		case rel == name:
			return nil
		case d.IsDir():
			return os.Mkdir(target, 0o555)
		}
		return copySetting(path, target, rel)
	})
}

func copySetting(from, to, rel string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	// Some can only be written; they are empty here.
	value, _ := os.ReadFile(from)
	if rel == "kernel/random/boot_id" {
		var b [16]byte
		if _, err := rand.Read(b[:]); err != nil {
			return err
		}
		value = []byte(formatUUID(fmt.Sprintf("%x", b)) + "\n")
	}
	if err := os.WriteFile(to, value, info.Mode().Perm()); err != nil {
		return err
	}
	if slices.Contains(realSettings, rel) {
		return bindMount(from, to)
	}
	return nil
}

// formatUUID formats 32 hexadecimal digits as the kernel does.
func formatUUID(hex string) string {
	return strings.Join([]string{hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:]}, "-")
}

// builtinModules reads the kernel configuration, if it is available.
func builtinModules() []string {
	f, err := os.Open("/proc/config.gz")
	if err != nil {
		return nil
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil
	}
	config, err := io.ReadAll(z)
	if err != nil {
		return nil
	}
	return builtIn(string(config))
}
