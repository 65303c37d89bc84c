package fsync

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestCommit_RenamesAndClosesFile(t *testing.T) {
	dir := t.TempDir()
	to := filepath.Join(dir, "file")
	for _, text := range []string{"old", "new"} {
		f, err := os.CreateTemp(dir, ".new-*")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := Commit(f, to); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(to); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("the file is open: %v", err)
		}
	}
}

func TestSyncFiles_SyncsFilesOfDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "dir"), 0o700), os.Symlink("nowhere", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * atOnce {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(SyncFiles(root), root.Close()); err != nil {
		t.Error(err)
	}
	if err := SyncFiles(root); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a directory that is closed: %v", err)
	}
}

func TestRename_ReturnsErrorIfSourceIsMissing(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "a"), filepath.Join(dir, "b", "a")
	if err := errors.Join(os.Mkdir(from, 0o700), os.Mkdir(filepath.Dir(to), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := Rename(from, to); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(to); err != nil {
		t.Error(err)
	}
	if err := Rename(from, to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestSyncDir_IgnoresFileSystemsWithoutSync(t *testing.T) {
	for path, want := range map[string]error{t.TempDir(): nil, "/proc": nil, "/nonexistent": fs.ErrNotExist} {
		if err := SyncDir(path); !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestSyncDirIn_SyncsDirectoryBelowRoot(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }() // the test is over
	for name, want := range map[string]error{".": nil, "in": nil, "missing": fs.ErrNotExist} {
		if err := SyncDirIn(root, name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if err := SyncDir("/proc/self"); err != nil {
		t.Errorf("a file system without fsync: %v", err)
	}
}
