package modules

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// TestAptSandbox_UsesAptUserOnlyForRoot: for root, apt fetches as its own user if that
// user can enter the directory. For others, it fetches as the caller.
func TestAptSandbox_UsesAptUserOnlyForRoot(t *testing.T) {
	cache := t.TempDir()
	requireroot.Need(t, "only root has apt fetch as its own user")
	for _, as := range []*fileowner.Owner{nil, {UID: 1000, GID: 1000}} {
		root := as == nil
		d, remove, err := newDebs(cache, "amd64", as)
		if err != nil {
			t.Fatal(err)
		}
		if off := slices.Contains(d.aptOptions(), "APT::Sandbox::User="); off == root {
			t.Errorf("root %v: apt's own user is switched off: %v", root, off)
		}
		if info, err := os.Stat(d.dir); root && (err != nil || info.Mode().Perm()&0o001 == 0) {
			t.Errorf("apt's own user cannot enter %s: %v", d.dir, err)
		}
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(d.dir); root && !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", d.dir, err)
		}
	}
}

// TestAptSandbox_UnderAnyUmask: apt's own user can enter the directories for apt under
// any umask.
func TestAptSandbox_UnderAnyUmask(t *testing.T) {
	requireroot.Need(t, "only root has apt fetch as its own user")
	tools := t.TempDir()
	writeTestFile(t, filepath.Join(tools, "apt-get"), "#!/bin/sh\n")
	if err := os.Chmod(filepath.Join(tools, "apt-get"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	d, remove, err := newDebs(t.TempDir(), "amd64", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	}()
	if err := d.updateLists(t.Context(), func(source.Progress) {}); err != nil {
		t.Fatal(err)
	}
	got := map[string]os.FileMode{}
	for _, sub := range []string{"state", "state/lists", "cache", "cache/archives", "log"} {
		info, err := os.Stat(filepath.Join(d.dir, sub))
		if err != nil {
			t.Fatal(err)
		}
		got[sub] = info.Mode().Perm()
	}
	want := map[string]os.FileMode{"state": 0o755, "state/lists": 0o755, "cache": 0o755, "cache/archives": 0o755, "log": 0o755}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("modes (-want +got):\n%s", diff)
	}
}

// TestUnpackPackages_CreatesMissingDirectory unpacks fetched packages into a directory
// that does not exist yet, as root and as the caller.
func TestUnpackPackages_CreatesMissingDirectory(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	tools := t.TempDir()
	deb := filepath.Join(tools, "hello_1_all.deb")
	if err := errors.Join(os.MkdirAll(filepath.Join(tools, "hello/DEBIAN"), 0o755),
		os.MkdirAll(filepath.Join(tools, "hello/usr/share"), 0o755)); err != nil {
		t.Fatal(err)
	}
	writeTestFile(t, filepath.Join(tools, "hello/DEBIAN/control"),
		"Package: hello\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: none\n")
	writeTestFile(t, filepath.Join(tools, "hello/usr/share/hello"), "hello\n")
	if out, err := exec.Command("dpkg-deb", "--build", filepath.Join(tools, "hello"), deb).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	writeTestFile(t, filepath.Join(tools, "apt-get"),
		"#!/bin/sh\nset -e\nfor a; do case $a in\nDir::Cache::archives=*) to=${a#*=} ;;\ninstall) cp "+deb+" $to ;;\nesac; done\n")
	if err := os.Chmod(filepath.Join(tools, "apt-get"), 0o755); err != nil {
		t.Fatal(err)
	}
	openToUser(t, tools, nil)
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	for _, as := range []*fileowner.Owner{nil, {UID: 12345, GID: 12346}} {
		cache := t.TempDir()
		openToUser(t, cache, as)
		d, remove, err := newDebs(cache, "amd64", as)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(cache, "scratch", "sysroot")
		if _, err := d.unpackPackages(t.Context(), []string{"hello"}, dir, func(source.Progress) {}); err != nil {
			t.Errorf("as %v: %v", as, err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "usr/share/hello")); string(got) != "hello\n" {
			t.Errorf("as %v: %q, %v", as, got, err)
		}
		if err := remove(); err != nil {
			t.Error(err)
		}
	}
}
