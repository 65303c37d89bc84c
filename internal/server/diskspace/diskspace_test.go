package diskspace

import (
	"path/filepath"
	"testing"
)

const mib = 1 << 20

func TestReserve_IsPartOfDisk(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		all, want    int64
	}{
		{"small", "etcd needs the same room on each disk", 64 * mib, minReserve},
		{"medium", "the reserve grows with the disk", 1 << 30, (1 << 30) / reservePart},
		{"large", "etcd does not need more on a larger disk", 1 << 40, maxReserve},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Reserve(tc.all); got != tc.want {
				t.Errorf("%s: %d of %d bytes instead of %d", tc.reason, got, tc.all, tc.want)
			}
			if got := BackupReserve(tc.all); got < Reserve(tc.all)+minReserve {
				t.Errorf("a backup leaves %d bytes, which are not clearly more than the reserve of %d", got, Reserve(tc.all))
			}
		})
	}
}

func TestReadFree_ReadsDiskOfDirectory(t *testing.T) {
	dir := t.TempDir()
	if free, all, err := ReadFree(dir); err != nil || free < 0 || all <= 0 || free > all {
		t.Errorf("%d of %d bytes, %v", free, all, err)
	}
	if _, _, err := ReadFree(filepath.Join(dir, "absent")); err == nil {
		t.Error("a directory that does not exist has a disk")
	}
}
