package smalldisk

import (
	"os"
	"os/exec"
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
