package bounded

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
)

func TestReadAll_RefusesMoreThanLimit(t *testing.T) {
	broken := errors.New("broken")
	tests := []struct {
		name, text string
		limit      int64
		want       string
		over       bool
	}{
		{"less", "abc", 4, "abc", false},
		{"just as much", "abcd", 4, "abcd", false},
		{"more", "abcde", 4, "abcd", true},
		{"nothing", "", 0, "", false},
		{"nothing is taken", "a", 0, "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadAll(strings.NewReader(tt.text), tt.limit)
			var over *LimitError
			if string(got) != tt.want || errors.As(err, &over) != tt.over || !tt.over && err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	if _, err := ReadAll(iotest.ErrReader(broken), 4); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestReadFile_RefusesLargeAndIrregularFiles(t *testing.T) {
	dir := t.TempDir()
	file, pipe, sparse := filepath.Join(dir, "file"), filepath.Join(dir, "pipe"), filepath.Join(dir, "sparse")
	if err := errors.Join(os.WriteFile(file, []byte("text"), 0o600), os.WriteFile(sparse, nil, 0o600),
		os.Truncate(sparse, 1<<40), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, read := range []func(string, int64) ([]byte, error){ReadFile, ReadArgument} {
		if text, err := read(file, 4); err != nil || string(text) != "text" {
			t.Errorf("%q, %v", text, err)
		}
		for _, name := range []string{file, sparse} {
			_, err := read(name, 3)
			var over *LimitError
			var at *fs.PathError
			if !errors.As(err, &over) || !errors.As(err, &at) || at.Path != name {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := read(filepath.Join(dir, "none"), 3); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	for _, name := range []string{pipe, dir, "/dev/zero"} {
		if _, err := ReadFile(name, 3); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	if zeros, err := ReadArgument("/dev/zero", 3); err == nil || len(zeros) != 3 {
		t.Errorf("%q, %v", zeros, err)
	}
}
