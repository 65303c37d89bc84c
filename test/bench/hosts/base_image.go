//go:build linux

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// packages lists the packages of a host in addition to a minimal Debian: an SSH server,
// and packages that Ansible needs. Slipway does not need the latter.
const packages = "openssh-server,iproute2,kmod,procps,python3"

// baseTree is a directory with the files that hosts have in common, made once.
func baseTree(ctx context.Context, cache string) (string, error) {
	suite, err := hostRelease()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(packages))
	tree := filepath.Join(cache, "bench", "hosts-"+suite+"-"+hex.EncodeToString(sum[:4]))
	if _, err := os.Stat(tree); !errors.Is(err, fs.ErrNotExist) {
		return tree, err
	}
	fmt.Println("Making the files of hosts (Debian packages; once)")
	if err := installPackage(ctx, "debootstrap", "debootstrap"); err != nil {
		return "", err
	}
	tmp := tree + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return "", err
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return "", err
	}
	args := []string{"--variant=minbase", "--include=" + packages, suite, tmp}
	if m := packageMirror(ctx, suite); m != "" {
		args = append(args, m)
	}
	cmd := exec.CommandContext(ctx, "debootstrap", args...)
	// Its mounts and child processes end with it.
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Unshareflags: unix.CLONE_NEWNS}
	if err := runQuietly(cmd); err != nil {
		return "", err
	}
	return tree, os.Rename(tmp, tree)
}

// hostRelease is the release that this machine runs.
func hostRelease() (string, error) {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return name, nil
		}
	}
	return "", errors.New("hosts are made of Debian's packages, and this machine is no Debian")
}

// packageMirror returns the package mirror of this machine; "" if it is not known.
func packageMirror(ctx context.Context, suite string) string {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)",
		"Created-By: Packages").Output()
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == suite && f[1] == "main" {
			return f[2]
		}
	}
	return ""
}

func needAnsible(ctx context.Context) error {
	return installPackage(ctx, "ansible", "ansible-playbook")
}

// installPackage sees to a program by its package.
func installPackage(ctx context.Context, name, program string) error {
	if _, err := exec.LookPath(program); err == nil {
		return nil
	}
	fmt.Println("Installing " + name)
	if err := runQuietly(exec.CommandContext(ctx, "apt-get", "update", "-qq")); err != nil {
		return err
	}
	return runQuietly(exec.CommandContext(ctx, "apt-get", "install", "-y", "-qq", "--no-install-recommends", name))
}

// runQuietly runs a program whose output is of interest only if it fails.
func runQuietly(cmd *exec.Cmd) error {
	cmd.Env = append(cmd.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, lastOutput(string(out)))
	}
	return nil
}

// lastOutput is the end of an output.
func lastOutput(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
