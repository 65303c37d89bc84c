package backups

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// TestSnapshotPath_RefusesLinkToDirectoryOfAnotherUser: root does not write a backup set through a link of a user into
// a directory of another user.
func TestSnapshotPath_RefusesLinkToDirectoryOfAnotherUser(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	to := &fileowner.Owner{UID: 12345, GID: 12346}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Mkdir(path("home"), 0o755), os.Mkdir(path("home/disk"), 0o755), os.Mkdir(path("etc"), 0o755),
		os.Symlink("../etc", path("home/link")), os.Symlink("disk", path("home/mine")),
		to.GiveFiles(path("home"), path("home/disk"), path("home/link"), path("home/mine"))); err != nil {
		t.Fatal(err)
	}
	m := &snapshotting{in: New(Config{})}
	_, err := m.setPath("prod", SnapshotOptions{Out: path("home/link/set")}, false)
	var list diag.List
	if !errors.As(err, &list) || list[0].ID != idBackupFailed {
		t.Errorf("a link: %v, want it refused", err)
	}
	for _, name := range []string{"home/set", "home/mine/set", "etc/set"} {
		if got, err := m.setPath("prod", SnapshotOptions{Out: path(name)}, false); err != nil || got != path(name) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
