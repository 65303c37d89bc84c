package fileowner

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/testutil/requireroot"
)

// testOwner owns what root gives away in these tests.
func testOwner(t *testing.T) *Owner {
	t.Helper()
	requireroot.Need(t, "giving files to others")
	return &Owner{UID: 12345, GID: 12346}
}

func ownerOf(t *testing.T, path string) Owner {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return Owner{UID: int(st.Uid), GID: int(st.Gid)}
}

func TestMakeDir_GivesNewDirectoriesToOwner(t *testing.T) {
	dir, to := t.TempDir(), testOwner(t)
	before := ownerOf(t, dir)
	if err := to.MakeDir(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]Owner{"": before, "a": *to, "a/b": *to} {
		if d := cmp.Diff(want, ownerOf(t, filepath.Join(dir, path))); d != "" {
			t.Errorf("%q (-want +got):\n%s", path, d)
		}
	}
	if err := (*Owner)(nil).MakeDir(filepath.Join(dir, "c", "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Owner{UID: os.Geteuid(), GID: os.Getegid()}, ownerOf(t, filepath.Join(dir, "c", "d"))); d != "" {
		t.Errorf("without an owner (-want +got):\n%s", d)
	}
}

func TestGiveTree_GivesOnlyFilesOfRoot(t *testing.T) {
	dir, to := t.TempDir(), testOwner(t)
	outside := filepath.Join(dir, "outside")
	tree := filepath.Join(dir, "tree")
	for _, path := range []string{outside, filepath.Join(tree, "d"), filepath.Join(tree, "kept", "d")} {
		if err := errors.Join(os.MkdirAll(path, 0o755), os.WriteFile(filepath.Join(path, "f"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(tree, "link")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Link(filepath.Join(tree, "d", "f"), filepath.Join(tree, "g")),
		os.Link(filepath.Join(outside, "f"), filepath.Join(tree, "hard"))); err != nil {
		t.Fatal(err)
	}
	before := ownerOf(t, outside)
	if err := to.GiveTree(tree, "kept"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]Owner{
		"tree": *to, "tree/d": *to, "tree/d/f": *to, "tree/g": *to, "tree/hard": before, "tree/link": *to, "tree/kept": before,
		"tree/kept/d": before, "tree/kept/d/f": before, "outside": before, "outside/f": before,
	} {
		if d := cmp.Diff(want, ownerOf(t, filepath.Join(dir, path))); d != "" {
			t.Errorf("%s (-want +got):\n%s", path, d)
		}
	}
	if err := to.GiveTree(filepath.Join(dir, "none")); err != nil {
		t.Errorf("a missing tree: %v", err)
	}
	other := Owner{UID: 54321, GID: 54321}
	if err := errors.Join(os.Chown(filepath.Join(tree, "d", "f"), other.UID, other.GID), to.GiveTree(tree)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(other, ownerOf(t, filepath.Join(tree, "d", "f"))); d != "" {
		t.Errorf("files of another user (-want +got):\n%s", d)
	}
}

func TestCanTake_RefusesDirectoriesOfOthers(t *testing.T) {
	to, other := testOwner(t), &Owner{UID: 54321, GID: 54321}
	dir := t.TempDir()
	path := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	for _, d := range []string{path("home", "roots"), path("other", "roots"), path("shared")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(to.GiveFiles(path("home")), other.GiveFiles(path("other")),
		os.Symlink(path("shared"), path("home", "link"))); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		dir, reason string
		want        bool
	}{
		{path("home"), "it is theirs", true},
		{path("home", "roots"), "a run that was cut has left it", true},
		{path("home", "link"), "what it leads to is shared", false},
		{path("shared"), "it may hold other things", false},
		{path("other"), "it is another's", false},
		{path("other", "roots"), "it is made for another", false},
		{path("none"), "it is not there", false},
	} {
		if got := to.CanTake(tt.dir); got != tt.want {
			t.Errorf("%s: %t, want %t: %s", tt.dir, got, tt.want, tt.reason)
		}
	}
}
