package bounded

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestOpen_RefusesIrregularFiles(t *testing.T) {
	dir := t.TempDir()
	file, pipe, link := filepath.Join(dir, "file"), filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for name, good := range map[string]bool{
		file: true, link: true, pipe: false, dir: false, "/dev/zero": false,
		filepath.Join(dir, "none"): false,
	} {
		f, err := Open(name)
		if (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		if text, err := io.ReadAll(f); err != nil || string(text) != "text" {
			t.Errorf("%s has %q, %v", name, text, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
