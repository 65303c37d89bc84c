package kubeconfig

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

func ownerOf(t *testing.T, name string) (uid, gid int) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		t.Fatal(err)
	}
	return int(st.Uid), int(st.Gid)
}

// TestMerge_RefusesUserLinksToForeignDirectories: on behalf of a user, root writes no
// file if a link of that user leads to a directory of another user.
func TestMerge_RefusesUserLinksToForeignDirectories(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	to := &fileowner.Owner{UID: 12345, GID: 12346}
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
				to.GiveFiles(path("dotfiles"), path(".kube"), path(".kube", "config"))); err != nil {
				t.Fatal(err)
			}
			at, err := openPlace(path(".kube", "config"), to)
			var list diag.List
			if tt.refused != (errors.As(err, &list) && list[0].ID == idForeign) {
				t.Errorf("error %v", err)
			}
			if at != nil {
				if err := at.close(); err != nil {
					t.Error(err)
				}
			}
			if left, err := os.ReadDir(path("etc")); err != nil || len(left) != 1 {
				t.Errorf("in the directory of root are %v, %v", left, err)
			}
		})
	}
}

// TestMerge_DoesNotFollowLinksThatReplaceFiles replaces the directory or the file of a
// user with a link while root works on it. Root reads, changes and removes nothing
// elsewhere.
func TestMerge_DoesNotFollowLinksThatReplaceFiles(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	to := &fileowner.Owner{UID: 12345, GID: 12346}
	access := Access{Cluster: "prod", Admin: adminKubeconfig("https://10.0.0.1:6443", "Y2E=")}
	for _, tt := range []struct {
		name string
		swap func(kube, etc string) error
	}{
		{"the directory before", func(kube, etc string) error { return errors.Join(os.Rename(kube, kube+".was"), os.Symlink(etc, kube)) }},
		{"the file before", func(kube, etc string) error {
			return errors.Join(os.Remove(kube+"/config"), os.Symlink(etc+"/config", kube+"/config"))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			home, etc := filepath.Join(dir, "home"), filepath.Join(dir, "etc")
			kube := filepath.Join(home, ".kube")
			text := "kind: Config\n"
			if err := errors.Join(os.MkdirAll(kube, 0o755), os.Mkdir(etc, 0o755), os.WriteFile(filepath.Join(kube, "config"), []byte(text), 0o600),
				os.WriteFile(filepath.Join(etc, "config"), []byte(text), 0o600), os.WriteFile(filepath.Join(etc, "config.lock"), nil, 0o600),
				to.GiveFiles(home, kube, filepath.Join(kube, "config")), tt.swap(kube, etc), to.GiveFiles(kube)); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Lstat(filepath.Join(kube, "config")); err == nil && info.Mode()&os.ModeSymlink != 0 {
				if err := to.GiveFiles(filepath.Join(kube, "config")); err != nil {
					t.Fatal(err)
				}
			}
			for name, do := range map[string]func() error{
				"merge":  func() error { return Merge(t.Context(), filepath.Join(kube, "config"), access, MergeOptions{}, to) },
				"remove": func() error { return Remove(t.Context(), filepath.Join(kube, "config"), access, to) },
				"write":  func() error { return Write(filepath.Join(kube, "config"), access, to) },
				"as root alone": func() error {
					return Merge(t.Context(), filepath.Join(kube, "config"), access, MergeOptions{}, nil)
				},
			} {
				var list diag.List
				if err := do(); !errors.As(err, &list) || list[0].ID != idForeign {
					t.Errorf("%s: error %v, want %s", name, err, idForeign)
				}
			}
			left, err := os.ReadDir(etc)
			if err != nil || len(left) != 2 {
				t.Errorf("in the directory of root are %v, %v", left, err)
			}
			if got, err := os.ReadFile(filepath.Join(etc, "config")); err != nil || string(got) != text {
				t.Errorf("the file of root has %q, %v", got, err)
			}
			if uid, _ := ownerOf(t, filepath.Join(etc, "config")); uid != 0 {
				t.Errorf("the file of root belongs to user %d", uid)
			}
		})
	}
}

// TestOpenPlace_KeepsDirectoryThatBecomesLink: an open place keeps its directory when a
// link replaces that directory.
func TestOpenPlace_KeepsDirectoryThatBecomesLink(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	to := &fileowner.Owner{UID: 12345, GID: 12346}
	dir := t.TempDir()
	kube, etc := filepath.Join(dir, ".kube"), filepath.Join(dir, "etc")
	if err := errors.Join(os.Mkdir(kube, 0o755), os.Mkdir(etc, 0o755), to.GiveFiles(kube)); err != nil {
		t.Fatal(err)
	}
	at, err := openPlace(filepath.Join(kube, "config"), to)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(kube, kube+".was"), os.Symlink(etc, kube), to.GiveFiles(kube)); err != nil {
		t.Fatal(err)
	}
	unlock, err := at.lockFile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(at.replaceFile([]byte("kind: Config\n"), to), unlock(), at.close()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(etc); err != nil || len(left) > 0 {
		t.Errorf("in the directory of root are %v, %v", left, err)
	}
	if uid, gid := ownerOf(t, filepath.Join(kube+".was", "config")); uid != to.UID || gid != to.GID {
		t.Errorf("the file belongs to %d:%d", uid, gid)
	}
}
