package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// baseImage returns a disk image of this size with the base system, and creates it if it
// is not in the cache. The disks of machines are copies of it.
func baseImage(ctx context.Context, o Options) (string, error) {
	suite, err := hostSuite()
	if err != nil {
		return "", err
	}
	r := newRecipe(suite, runtime.GOARCH)
	digest, err := r.treeDigest()
	if err != nil {
		return "", err
	}
	name := suite + "-" + digest
	fd, err := baseDir(o.Owner, o.Cache, name)
	if err != nil {
		return "", err
	}
	dir := pinnedPath(fd)
	image := filepath.Join(dir, "disk-"+strconv.FormatInt(o.Disk>>20, 10)+".ext4")
	lock, err := lockPath(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return "", fmt.Errorf("locking the base system: %w", err)
	}
	defer lock.Close()
	if _, err := os.Stat(image); err == nil {
		return image, nil
	}
	if err := removeIncomplete(dir); err != nil {
		return "", fmt.Errorf("removing the remains of a killed program: %w", err)
	}
	tree := filepath.Join(dir, "tree")
	if _, err := os.Stat(tree); errors.Is(err, fs.ErrNotExist) {
		o.Progress("Creating the base system (Debian packages; only once)")
		if err := makeTree(ctx, r, tree, filepath.Join(o.Cache, baseName, name)); err != nil {
			return "", fmt.Errorf("creating the base system: %w", err)
		}
	}
	o.Progress("Creating the disk image")
	if err := makeImage(ctx, tree, image, o.Disk); err != nil {
		return "", fmt.Errorf("creating the disk image: %w", err)
	}
	return image, nil
}

// removeIncomplete removes incomplete files. The caller must hold the lock of the directory.
func removeIncomplete(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tmpPrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// lockPath waits for an exclusive lock; closing the file releases it.
func lockPath(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = pollUntil(ctx, 100*time.Millisecond, func() (bool, error) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		if err == nil && !samePath(f, path) {
			err = fmt.Errorf("%s no longer exists", path)
		}
		return err == nil, err
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// hostSuite returns the release of this host: machines run the same one.
func hostSuite() (string, error) {
	b, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	values := map[string]string{}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[k] = strings.Trim(v, `"`)
	}
	if id := values["ID"]; (id != "debian" && id != "ubuntu") || values["VERSION_CODENAME"] == "" {
		return "", refuseWith(IDHostSystem, "machines are built from Debian or Ubuntu packages, but this host runs "+values["PRETTY_NAME"],
			"use a Debian or Ubuntu host, or a virtual machine that runs one")
	}
	return values["VERSION_CODENAME"], nil
}

// makeTree installs the packages into a directory, all or nothing. The log is next to it;
// shown is its path for people.
func makeTree(ctx context.Context, r recipe, tree, shown string) error {
	if err := installDebootstrap(ctx); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(tree), tmpPrefix)
	if err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil { // it becomes the root of machines
		return err
	}
	args := []string{"--force-check-gpg", "--variant=minbase", "--include=" + strings.Join(r.Packages, ","), r.Suite, tmp}
	if m := hostMirror(ctx, r.Suite); m != "" {
		args = append(args, m)
	}
	if err := runDebootstrap(ctx, tree+".log", filepath.Join(shown, "tree.log"), args); err != nil {
		return err
	}
	if err := tidyTree(r, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, tree)
}

func installDebootstrap(ctx context.Context) error {
	if _, err := exec.LookPath("debootstrap"); err == nil {
		return nil
	}
	const hint = "apt-get install -y debootstrap"
	if _, err := runProgram(ctx, "", "apt-get", "install", "-y", "-qq", "debootstrap"); err == nil {
		return nil
	}
	_, err := runProgram(ctx, "", "apt-get", "update", "-qq")
	if err == nil {
		_, err = runProgram(ctx, "", "apt-get", "install", "-y", "-qq", "debootstrap")
	}
	if err != nil {
		return refuseWith(IDMissingProgram, "debootstrap is not installed, and its installation failed: "+err.Error(), hint)
	}
	return nil
}

// runDebootstrap runs it in separate namespaces: everything that it mounts and starts ends
// with it.
func runDebootstrap(ctx context.Context, log, shown string, args []string) error {
	out, err := os.Create(log)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, "debootstrap", args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Unshareflags: unix.CLONE_NEWNS}
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(log)
		lines := strings.Split(strings.TrimSpace(string(said)), "\n")
		tail := strings.Join(lines[max(0, len(lines)-5):], "\n")
		return fmt.Errorf("running debootstrap: %w:\n%s\n(the full output is in %s)", err, tail, shown)
	}
	return nil
}

// hostMirror returns the source of this host's own packages; "" leaves the choice to
// debootstrap.
func hostMirror(ctx context.Context, suite string) string {
	out, err := runProgram(ctx, "", "apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == suite && f[1] == "main" {
			return f[2]
		}
	}
	return ""
}

// tidyTree removes what must differ between machines, and what only the installation
// needed.
func tidyTree(r recipe, tree string) error {
	for _, pattern := range []string{
		"etc/ssh/ssh_host_*", "etc/hostname", "etc/resolv.conf", "var/lib/dbus/machine-id",
		"var/cache/apt/archives/*.deb", "var/cache/apt/*.bin", "var/lib/apt/lists/*", "var/log/*.log", "var/log/apt/*",
		"dev/*", "run/*",
	} {
		found, err := filepath.Glob(filepath.Join(tree, pattern))
		if err != nil {
			return err
		}
		for _, f := range found {
			if err := os.RemoveAll(f); err != nil {
				return err
			}
		}
	}
	for _, name := range r.fileNames() {
		if err := writeFile(filepath.Join(tree, name), []byte(r.Files[name]), 0o644); err != nil {
			return err
		}
	}
	for _, unit := range r.Masked {
		path := filepath.Join(tree, "etc/systemd/system", unit)
		if err := os.Symlink("/dev/null", path); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file and its parent directories; the directories of a private file
// are private.
func writeFile(path string, b []byte, mode fs.FileMode) error {
	dirs := fs.FileMode(0o755)
	if mode&0o077 == 0 {
		dirs = 0o700
	}
	if err := os.MkdirAll(filepath.Dir(path), dirs); err != nil {
		return err
	}
	if err := os.WriteFile(path, b, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// makeImage creates a file system with the tree.
func makeImage(ctx context.Context, tree, image string, size int64) error {
	f, err := os.CreateTemp(filepath.Dir(image), tmpPrefix)
	if err != nil {
		return err
	}
	tmp := f.Name()
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	_, err = runProgram(ctx, "", "mkfs.ext4", "-q", "-F", "-d", tree, "-m", "0",
		"-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", "-J", "size=64", tmp)
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, image)
}
