package backups

import (
	"path/filepath"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/testutil/smalldisk"
)

// TestCheckRoom_RefusesSetOrSnapshotThatDoesNotFit uses a small disk in a separate mount namespace.
func TestCheckRoom_RefusesSetOrSnapshotThatDoesNotFit(t *testing.T) {
	smalldisk.RunApart(t, roomForSet)
}

// roomForSet checks for space on a disk that can hold a backup set but not also the
// snapshot.
func roomForSet(t *testing.T, dir string) {
	const small, big = 30 << 20, 60 << 20 // the disk must also keep some free space
	smalldisk.Mount(t, dir, "100m")
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
