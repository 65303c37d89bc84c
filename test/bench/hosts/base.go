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

// packages are what a host has besides a minimal Debian: an SSH server, and
// what Ansible needs. Slipway needs none of the latter.
const packages = "openssh-server,iproute2,kmod,procps,python3"

// baseTree is a directory with the files that hosts have in common, made once.
func baseTree(ctx context.Context, cache string) (string, error) {
	suite, err := suite()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(packages))
	tree := filepath.Join(cache, "bench", "hosts-"+suite+"-"+hex.EncodeToString(sum[:4]))
	if _, err := os.Stat(tree); !errors.Is(err, fs.ErrNotExist) {
		return tree, err
	}
	fmt.Println("Making the files of hosts (Debian packages; once)")
	if err := install(ctx, "debootstrap", "debootstrap"); err != nil {
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
	if m := mirror(ctx, suite); m != "" {
		args = append(args, m)
	}
	cmd := exec.CommandContext(ctx, "debootstrap", args...)
	// What it mounts and starts ends with it.
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Unshareflags: unix.CLONE_NEWNS}
	if err := quiet(cmd); err != nil {
		return "", err
	}
	return tree, os.Rename(tmp, tree)
}

// suite is the release that this machine runs.
func suite() (string, error) {
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

// mirror is where this machine's own packages come from; "" if it cannot be
// told.
func mirror(ctx context.Context, suite string) string {
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

func needAnsible(ctx context.Context) error { return install(ctx, "ansible", "ansible-playbook") }

// install sees to a program by its package.
func install(ctx context.Context, name, program string) error {
	if _, err := exec.LookPath(program); err == nil {
		return nil
	}
	fmt.Println("Installing " + name)
	if err := quiet(exec.CommandContext(ctx, "apt-get", "update", "-qq")); err != nil {
		return err
	}
	return quiet(exec.CommandContext(ctx, "apt-get", "install", "-y", "-qq", "--no-install-recommends", name))
}

// quiet runs a program whose output is of interest only if it fails.
func quiet(cmd *exec.Cmd) error {
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, tail(string(out)))
	}
	return nil
}

// tail is the end of an output.
func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
