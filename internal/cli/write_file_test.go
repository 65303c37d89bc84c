package cli

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// TestWriteFile_AsRootRefusesLinksOfUsers: root creates no file through a user's link to
// a directory of another user.
func TestWriteFile_AsRootRefusesLinksOfUsers(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	to := &fileowner.Owner{UID: 12345, GID: 12346}
	dir := t.TempDir()
	home, etc := filepath.Join(dir, "home"), filepath.Join(dir, "etc")
	link := filepath.Join(home, "link")
	if err := errors.Join(os.Mkdir(home, 0o755), os.Mkdir(etc, 0o755), os.Symlink(etc, link), to.GiveFiles(home, link)); err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(path string) error{
		"first":   func(path string) error { return createFile(path, []byte("text"), 0o644, to) },
		"instead": func(path string) error { return replaceFile(path, []byte("text"), 0o644, to) },
	} {
		var foreign *fileowner.ForeignError
		if err := write(filepath.Join(link, name)); !errors.As(err, &foreign) {
			t.Errorf("%s: error %v, want a *ForeignError", name, err)
		}
		if err := write(filepath.Join(home, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(etc); err != nil || len(left) > 0 {
		t.Errorf("in the directory of others are %v, %v", left, err)
	}
}
