package fileowner

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"slipway.dev/slipway/internal/testutil/requireroot"
)

func TestReplaceFile_KeepsOldFileIfDiskIsFull(t *testing.T) {
	requireroot.Need(t, "mounting a small disk")
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(dir, "prod.yaml")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (*Owner)(nil).ReplaceFile(file, bytes.Repeat([]byte("new"), 1<<20), 0o644); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v, want ENOSPC", err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "old" {
		t.Errorf("the file has %d bytes (%v), want it as it was", len(b), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("remaining files: %v (%v)", left, err)
	}
}
