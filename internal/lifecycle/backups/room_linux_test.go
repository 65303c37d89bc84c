package backups

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/testutil/requireroot"
)

// TestRoomForSet uses a small disk in a separate mount namespace.
func TestRoomForSet(t *testing.T) {
	if dir := os.Getenv("BACKUPS_TEST_DISK"); dir != "" {
		roomForSet(t, dir)
		return
	}
	requireroot.Need(t, "mounting a disk")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRoomForSet$", "-test.v")
	cmd.Env = append(os.Environ(), "BACKUPS_TEST_DISK="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// mount mounts a disk of some size at a directory.
func mount(t *testing.T, dir, size string) {
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

// roomForSet checks for space on a disk that can hold a backup set but not also the
// snapshot.
func roomForSet(t *testing.T, dir string) {
	const small, big = 30 << 20, 60 << 20 // the disk must also keep some free space
	mount(t, dir, "100m")
	for _, tc := range []struct {
		name, reason, passes string
		snapshot             int64
		refused              string // the directory that the error names
	}{
		{"both", "the snapshot does not fit as well", dir, small, dir},
		{"the set alone", "the snapshot is elsewhere", t.TempDir(), small, ""},
		{"too big", "the set does not fit", t.TempDir(), big, dir},
	} {
		m := &snapshotting{to: filepath.Join(dir, "mine")}
		if err := m.checkRoom(tc.passes, tc.snapshot); (err != nil) != (tc.refused != "") ||
			err != nil && !strings.Contains(err.Error(), "the disk of "+tc.refused+" is too full") {
			t.Errorf("%s: %v: %s", tc.name, err, tc.reason)
		}
	}
	m := &snapshotting{to: filepath.Join(t.TempDir(), "mine")}
	if err := m.checkRoom(dir, big); err == nil || !strings.Contains(err.Error(), "is stored there") {
		t.Errorf("the snapshot does not fit where it is stored first: %v", err)
	}
}
