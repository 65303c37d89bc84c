//go:build linux

package executor

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// disk mounts a separate file system at a path of the host.
func (h *testHost) disk(path string) {
	h.t.Helper()
	requireroot.Need(h.t, "mounting a disk")
	if err := os.MkdirAll(h.path(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", h.path(path), "tmpfs", 0, "mode=755"); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = unix.Unmount(h.path(path), unix.MNT_DETACH) })
}

// TestReset_EmptiesOnlyInitiallyEmptyDirectory checks that a directory that was empty before the install, often
// a separate disk, is empty again.
func TestReset_EmptiesOnlyInitiallyEmptyDirectory(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		make         func(h *testHost)
		dir          string // where the data is
		mode         os.FileMode
		plan, left   string
		keeps        []string
	}{
		{
			name: "a directory", reason: "it has no other content",
			dir: "/var/lib/etcd", mode: 0o700, plan: "remove everything in /var/lib/etcd",
		},
		{
			name: "as wanted already", reason: "nothing but the ledger has to change",
			dir: "/var/lib/etcd", mode: 0o755, plan: "remove everything in /var/lib/etcd",
		},
		{
			name: "a disk", reason: "it stays mounted, and its own directory stays",
			make: func(h *testHost) {
				h.disk("var/lib/etcd")
				if err := os.Mkdir(h.path("var/lib/etcd/lost+found"), 0o700); err != nil {
					h.t.Fatal(err)
				}
			},
			dir: "/var/lib/etcd", mode: 0o700, plan: "remove everything in /var/lib/etcd",
		},
		{
			name: "behind a link", reason: "the link stays",
			make: func(h *testHost) {
				h.disk("data")
				if err := os.Mkdir(h.path("data/etcd"), 0o755); err != nil {
					h.t.Fatal(err)
				}
				if err := os.Symlink("../../data/etcd", h.path("var/lib/etcd")); err != nil {
					h.t.Fatal(err)
				}
			},
			dir: "/data/etcd", mode: 0o700, plan: "remove everything in /data/etcd",
		},
		{
			name: "in use", reason: "what is theirs was noted",
			make: func(h *testHost) { h.write("var/lib/etcd/theirs", "x") },
			dir:  "/var/lib/etcd", mode: 0o700,
		},
		{
			name: "in use, with a name like ours", reason: "the owner of its content is unknown",
			make: func(h *testHost) { h.write("var/lib/etcd/member/theirs", "x") },
			dir:  "/var/lib/etcd", mode: 0o700, keeps: []string{"/var/lib/etcd/member/wal"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			if c.make != nil {
				c.make(h)
			} else if err := os.Mkdir(h.path("var/lib/etcd"), 0o755); err != nil {
				t.Fatal(err)
			}
			before := h.outside()
			dir := op.Dir{Path: "/var/lib/etcd", Mode: c.mode, Exclusive: true}
			h.apply(dir)
			if r := h.check(dir)[0]; r.Status != op.Unchanged {
				t.Errorf("after that: %s (%s)", r.Status, r.Summary)
			}
			h.write(c.dir+"/member/wal", "data")
			reset := op.Reset{Paths: []string{"/var/lib/etcd"}}
			if r := h.check(reset)[0]; r.Summary != c.plan {
				t.Errorf("the plan is %q, want %q: %s", r.Summary, c.plan, c.reason)
			}
			h.apply(reset)
			if r := h.check(reset)[0]; r.Status != op.Unchanged {
				t.Errorf("again: %s", r.Summary)
			}
			h.apply(op.RestoreHost{})
			after := h.outside()
			for _, p := range c.keeps {
				if _, ok := after[p]; !ok {
					t.Errorf("%s is gone: %s", p, c.reason)
				}
				delete(after, p)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("not as before: %s\n%s", c.reason, diff)
			}
		})
	}
}

// TestReset_KeepsContentOfAnotherDisk checks that a disk is not emptied if another directory
// was empty before the install.
func TestReset_KeepsContentOfAnotherDisk(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		before, now  func(h *testHost)
	}{
		{
			"mounted since", "it may have been full",
			func(h *testHost) { _ = os.Mkdir(h.path("var/lib/etcd"), 0o755) },
			func(h *testHost) { h.disk("var/lib/etcd") },
		},
		{
			"not mounted any more", "the directory below belongs to other software",
			func(h *testHost) { h.disk("var/lib/etcd") },
			func(h *testHost) { _ = unix.Unmount(h.path("var/lib/etcd"), 0) },
		},
		{
			"another one", "the same place is not the same disk",
			func(h *testHost) { h.disk("var/lib/etcd") },
			func(h *testHost) {
				_ = unix.Unmount(h.path("var/lib/etcd"), 0)
				h.disk("var/lib/etcd")
			},
		},
		{
			"above it", "the place is another",
			func(h *testHost) { _ = os.Mkdir(h.path("var/lib/etcd"), 0o755) },
			func(h *testHost) {
				state := must(os.ReadFile(h.path("var/lib/slipway/ledger/log")))
				h.disk("var/lib")
				h.write("var/lib/slipway/ledger/log", string(state))
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			c.before(h)
			h.apply(op.Dir{Path: "/var/lib/etcd", Mode: 0o700, Exclusive: true})
			c.now(h)
			h.write("var/lib/etcd/theirs", "precious")
			if err := os.Chmod(h.path("var/lib/etcd"), 0o700); err != nil {
				t.Fatal(err)
			}
			const left = "/var/lib/etcd: left: on a different file system than before the install; its content remains"
			reset := op.Reset{Paths: []string{"/var/lib/etcd"}}
			if r := h.check(reset)[0]; r.Summary != left {
				t.Errorf("the plan is %q", r.Summary)
			}
			for _, r := range h.apply(reset, op.RestoreHost{}) {
				if !slices.Contains(strings.Split(string(r.Output), "\n"), left) {
					t.Errorf("%s reports %q", r.Kind, r.Output)
				}
			}
			if h.read("var/lib/etcd/theirs") != "precious" {
				t.Errorf("its content is changed: %s", c.reason)
			}
			if mode := must(os.Stat(h.path("var/lib/etcd"))).Mode().Perm(); mode != 0o700 {
				t.Errorf("its mode is %v: %s", mode, c.reason)
			}
		})
	}
}

// TestReset_KeepsMountedFileSystemsInDirectory checks that file systems that fstab mounts below the directory
// are not emptied.
func TestReset_KeepsMountedFileSystemsInDirectory(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.disk("var/lib/kubelet")
	h.apply(op.Dir{Path: "/var/lib/kubelet", Exclusive: true})
	h.disk("var/lib/kubelet/theirs")
	h.write("var/lib/kubelet/theirs/x", "x")
	h.write("var/lib/kubelet/pods/x", "x")
	r := h.apply(op.Reset{Paths: []string{"/var/lib/kubelet"}})[0]
	if !strings.Contains(string(r.Output), "/var/lib/kubelet: left: still mounted: ") {
		t.Errorf("the report is %q", r.Output)
	}
	if host.Exists(h.path("var/lib/kubelet/pods")) || !host.Exists(h.path("var/lib/kubelet/theirs/x")) {
		t.Error("ours is left, or what is mounted is gone")
	}
}

// TestRestoreHost_EmptiesDirectoryWithoutReset checks that a restore needs no Reset before it.
func TestRestoreHost_EmptiesDirectoryWithoutReset(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.disk("var/lib/etcd")
	h.apply(op.Dir{Path: "/var/lib/etcd", Exclusive: true})
	h.write("var/lib/etcd/member/wal", "data")
	r := h.apply(op.RestoreHost{})[0]
	if host.Exists(h.path("var/lib/etcd/member")) || !strings.Contains(string(r.Output), "/var/lib/etcd: emptied") {
		t.Errorf("member is there: %v; the report is %q", host.Exists(h.path("var/lib/etcd/member")), r.Output)
	}
}

func TestRestoreHost_EmptiesDirectoryDespiteCrash(t *testing.T) {
	t.Parallel()
	for at := 1; at < crashPoints; at += everyStep {
		h := newHost(t)
		if err := os.Mkdir(h.path("var/lib/etcd"), 0o755); err != nil {
			t.Fatal(err)
		}
		before := h.snapshot()
		dir := op.Dir{Path: "/var/lib/etcd", Mode: 0o700, Exclusive: true}
		first := h.crash(at, dir)
		h.apply(dir)
		h.write("var/lib/etcd/member/wal", "data")
		h.write("var/lib/etcd/another", "data")
		again := h.crash(at, op.RestoreHost{})
		h.apply(op.RestoreHost{})
		if diff := cmp.Diff(before, h.snapshot()); diff != "" {
			t.Fatalf("killed after step %d:\n%s", at, diff)
		}
		if !first && !again {
			return
		}
	}
	t.Fatal("there is no end to the steps")
}

// TestReset_RemovesNewFilesFromSharedDirectory checks that the keys and volumes of a node are removed from
// directories that had other content before. Remaining files are reported.
func TestReset_RemovesNewFilesFromSharedDirectory(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("var/lib/kubelet/pki/theirs.pem", "their key")
	h.write("var/lib/kubelet/pods/1/volume", "their data")
	h.write("var/lib/kubelet/note", "theirs")
	before := h.outside()
	dir := op.Dir{Path: "/var/lib/kubelet", Mode: 0o755, Exclusive: true, Shared: []string{"pki", "pods", "plugins"}}
	if r := h.check(dir)[0]; r.Summary != "record its content" {
		t.Errorf("the plan is %q", r.Summary)
	}
	h.apply(dir)
	for _, ours := range []string{"pki/kubelet.key", "pods/2/volume", "plugins/x", "config.yaml"} {
		h.write("var/lib/kubelet/"+ours, "ours")
	}
	if r := h.check(dir)[0]; r.Status != op.Unchanged {
		t.Errorf("after that: %s (%s)", r.Status, r.Summary)
	}
	h.apply(dir) // the new content belongs to Slipway
	h.apply(op.Reset{Paths: []string{"/var/lib/kubelet"}})
	r := h.apply(op.RestoreHost{})[0]
	if want := "/var/lib/kubelet: left: it had content before the install;"; !strings.Contains(string(r.Output), want) {
		t.Errorf("reported %q, want %q", r.Output, want)
	}
	if diff := cmp.Diff(before, h.outside()); diff != "" {
		t.Errorf("not as before:\n%s", diff)
	}
}
