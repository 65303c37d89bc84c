package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// A bootConfig has the data with which a machine's first process becomes its init.
type bootConfig struct {
	Hostname string `json:"hostname"`
	// Disk, and its mount directory Root, are relative to the directory of the sandbox,
	// in which the process starts: no link leads elsewhere.
	Disk        string      `json:"disk"`
	Root        string      `json:"root"`
	Network     string      `json:"network"`
	Hierarchies []hierarchy `json:"hierarchies"`
	// MachineID is written last at the first boot: a disk that has it also has the other
	// files.
	MachineID string     `json:"machineID"`
	Files     []bootFile `json:"files"`
}

type bootFile struct {
	Path string      `json:"path"`
	Mode fs.FileMode `json:"mode"`
	Data []byte      `json:"data"`
}

// Boot turns this process into the init of a machine: systemd. The supervisor starts it
// in new namespaces, writes a bootConfig to in, and reads an error from failed, which
// Boot closes without data on success. It returns only after an error.
func Boot(ctx context.Context, in io.Reader, failed *os.File) error {
	// Some of the following settings apply only to this thread, and exec keeps them.
	runtime.LockOSThread()
	unix.CloseOnExec(int(failed.Fd()))
	err := bootMachine(ctx, in)
	_, _ = io.WriteString(failed, err.Error()) // the supervisor may be gone
	return err
}

func bootMachine(ctx context.Context, in io.Reader) error {
	var c bootConfig
	if err := json.NewDecoder(in).Decode(&c); err != nil {
		return fmt.Errorf("reading the boot configuration: %w", err)
	}
	unix.Umask(0o022)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separating mounts: %w", err)
	}
	if err := mountDisk(c.Disk, c.Root); err != nil {
		return err
	}
	if err := writeMachineFiles(c); err != nil {
		return fmt.Errorf("writing the files of the machine: %w", err)
	}
	if _, err := runProgram(ctx, c.Network, "ip", "-batch", "-"); err != nil {
		return fmt.Errorf("setting up the network: %w", err)
	}
	if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	modules, err := hostModules()
	if err != nil {
		return err
	}
	if err := mountSystem(c); err != nil {
		return err
	}
	if modules != "" {
		if err := bindModules(c.Root, modules); err != nil {
			return err
		}
	}
	if err := pivotRoot(c.Root); err != nil {
		return fmt.Errorf("entering the machine's disk: %w", err)
	}
	if modules == "" {
		if err := listModules(ctx); err != nil {
			return fmt.Errorf("listing kernel modules: %w", err)
		}
	}
	return becomeInit()
}

// writeMachineFiles writes the files that differ between machines, at the first boot.
func writeMachineFiles(c bootConfig) error {
	id := filepath.Join(c.Root, "etc/machine-id")
	if b, err := os.ReadFile(id); err == nil && len(b) > 0 {
		return nil
	}
	for _, f := range c.Files {
		if err := writeFile(filepath.Join(c.Root, f.Path), f.Data, f.Mode); err != nil {
			return err
		}
	}
	return writeFile(id, []byte(c.MachineID+"\n"), 0o444)
}

// pivotRoot makes dir the root and unmounts the host's files.
func pivotRoot(dir string) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	// The old root is mounted on the new one.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	// Mounts of pods and of the kubelet's plugins are visible to each other.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// giveUpClock prevents this thread, and all its descendants, from setting the host's
// clock.
func giveUpClock() error {
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_TIME, 0, 0, 0); err != nil {
		return fmt.Errorf("dropping CAP_SYS_TIME: %w", err)
	}
	return nil
}

// becomeInit drops the permission to set the host's clock, and runs systemd.
func becomeInit() error {
	if err := giveUpClock(); err != nil {
		return err
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for fd := range 3 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	const init = "/lib/systemd/systemd"
	env := []string{"container=slipway", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return fmt.Errorf("running %s: %w", init, unix.Exec(init, []string{init, "--log-target=journal-or-kmsg"}, env))
}

// hostModules returns the host's directory of kernel modules; "" if everything is built
// into its kernel.
func hostModules() (string, error) {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "", err
	}
	dir := filepath.Join("/lib/modules", strings.TrimSpace(string(release)))
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return filepath.EvalSymlinks(dir)
}

// bindModules makes the host's modules visible to a machine, so that it can load them
// like a real host.
func bindModules(root, dir string) error {
	to := filepath.Join(root, "usr/lib/modules", filepath.Base(dir))
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return bindReadOnly(dir, to)
}

// listModules writes the list of built-in modules for modprobe. It runs in the machine.
func listModules(ctx context.Context) error {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	dir := filepath.Join("/usr/lib/modules", strings.TrimSpace(string(release)))
	if _, err := os.Stat(filepath.Join(dir, "modules.dep.bin")); err == nil {
		return nil
	}
	for name, text := range map[string]string{
		"modules.order":   "",
		"modules.builtin": strings.Join(builtinModules(), "\n") + "\n",
	} {
		if err := writeFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, "/sbin/depmod", filepath.Base(dir))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
