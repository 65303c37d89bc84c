package smalldisk

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/testutil/requireroot"
)

// variable has the directory for disks in the process of RunApart.
const variable = "SLIPWAY_TEST_DISK"

// RunApart runs the calling test again, in a process with a separate mount namespace. That
// process calls test with an empty directory, at which it can mount disks. t must be a test
// without a parent.
func RunApart(t *testing.T, test func(t *testing.T, dir string)) {
	t.Helper()
	if dir := os.Getenv(variable); dir != "" {
		test(t, dir)
		return
	}
	requireroot.Need(t, "mounting a disk")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Mount mounts a disk of some size, such as "1m", at a directory until the end of the test.
func Mount(t *testing.T, dir, size string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// Fill writes a file until its disk has only some bytes left.
func Fill(t *testing.T, path string, left int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		var disk unix.Statfs_t
		if err := unix.Statfs(filepath.Dir(path), &disk); err != nil {
			t.Fatal(err)
		}
		room := int64(disk.Bavail)*disk.Bsize - left
		if room <= 0 {
			return
		}
		if _, err := f.Write(make([]byte, min(room, 1<<20))); err != nil {
			t.Fatal(err)
		}
	}
}
