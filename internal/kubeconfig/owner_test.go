package kubeconfig

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/asroot"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/owner"
)

func ownerOf(t *testing.T, name string) (uid, gid int) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		t.Fatal(err)
	}
	return int(st.Uid), int(st.Gid)
}

// TestLinksOfTheOwner: on behalf of a user, root writes no file that a link of
// the user leads to in a directory of another one.
func TestLinksOfTheOwner(t *testing.T) {
	asroot.Need(t, "giving files to others")
	to := &owner.Owner{UID: 12345, GID: 12346}
	for _, tt := range []struct {
		name, target string // of the link, below a directory
		refused      bool
	}{
		{"new in a directory of root", "etc/new.conf", true},
		{"a file of root", "etc/admin.conf", true},
		{"in a directory that would be made", "etc/new/config", true},
		{"in a directory of the user", "dotfiles/config", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
			if err := errors.Join(os.Mkdir(path("etc"), 0o755), os.Mkdir(path("dotfiles"), 0o755), os.Mkdir(path(".kube"), 0o755),
				os.WriteFile(path("etc", "admin.conf"), []byte("kind: Config\n"), 0o600), os.Symlink(path(tt.target), path(".kube", "config")),
				to.Give(path("dotfiles"), path(".kube"), path(".kube", "config"))); err != nil {
				t.Fatal(err)
			}
			_, err := place(path(".kube", "config"), to)
			var list diag.List
			if tt.refused != (errors.As(err, &list) && list[0].ID == idForeign) {
				t.Errorf("error %v", err)
			}
			if _, err := place(path(".kube", "config"), nil); err != nil {
				t.Errorf("for the user's own program: %v", err)
			}
		})
	}
}
