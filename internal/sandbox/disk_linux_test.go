package sandbox

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/testutil/requireroot"
)

// syncDisk puts on disk what was done in the file system at dir.
func syncDisk(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// TestDisk_FreesDeletedSpace: deleted files of a machine no longer use space on the host.
func TestDisk_FreesDeletedSpace(t *testing.T) {
	requireroot.Need(t, "mounting a disk")
	dir := t.TempDir()
	image, root := filepath.Join(dir, "disk"), filepath.Join(dir, "root")
	tree := filepath.Join(dir, "tree")
	if err := errors.Join(os.Mkdir(root, 0o755), os.Mkdir(tree, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := makeImage(t.Context(), tree, image, 256<<20); err != nil {
		t.Fatal(err)
	}
	used := func() int64 {
		info, err := os.Stat(image)
		if err != nil {
			t.Error(err)
			return 0
		}
		return info.Sys().(*syscall.Stat_t).Blocks * 512
	}
	done := make(chan struct{})
	go func() { // its thread ends with it, and takes the mount along
		defer close(done)
		runtime.LockOSThread()
		big := filepath.Join(root, "big")
		var full int64
		for _, step := range []func() error{
			func() error { return unix.Unshare(unix.CLONE_NEWNS) },
			func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
			func() error { return mountDisk(image, root) },
			func() error { return os.WriteFile(big, bytes.Repeat([]byte{7}, 64<<20), 0o600) },
			func() error { return syncDisk(root) },
			func() error { full = used(); return os.Remove(big) },
			func() error { return syncDisk(root) },
			func() error { // the kernel frees space soon, but not immediately
				ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errors.New("nothing is given back"))
				defer cancel()
				return pollUntil(ctx, 20*time.Millisecond, func() (bool, error) { return used() < full-60<<20, nil })
			},
			func() error { return unix.Unmount(root, 0) },
		} {
			if err := step(); err != nil {
				t.Errorf("%v; the disk took %d MiB and takes %d MiB", err, full>>20, used()>>20)
				return
			}
		}
	}()
	<-done
}
