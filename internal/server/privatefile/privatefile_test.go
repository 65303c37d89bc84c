package privatefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/server/privatefile"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

func TestRead_RefusesFilesThatOthersCanUse(t *testing.T) {
	requireroot.Need(t, "changing the owner of a file")
	for _, tt := range []struct {
		name, reason string
		content      privatefile.Content
		prepare      func(path string) error
		want         string // id
	}{
		{"private", "the mode that the server writes", privatefile.Secret, nil, ""},
		{"readable certificate", "a certificate is public", privatefile.Public, func(p string) error { return os.Chmod(p, 0o644) }, ""},
		{
			"readable key", "others may know the key", privatefile.Secret,
			func(p string) error { return os.Chmod(p, 0o640) }, "server-file-unsafe",
		},
		{
			"writable certificate", "others may have replaced it", privatefile.Public,
			func(p string) error { return os.Chmod(p, 0o620) }, "server-file-unsafe",
		},
		{
			"other owner", "another user can change it at any time", privatefile.Public,
			func(p string) error { return os.Chown(p, 4711, 4711) }, "server-file-unsafe",
		},
		{"link", "root would read a file of another user", privatefile.Public, func(p string) error {
			return errors.Join(os.Rename(p, p+".target"), os.Symlink(p+".target", p))
		}, "server-file-unsafe"},
		{"pipe", "a read would never end", privatefile.Secret, func(p string) error {
			return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600))
		}, "server-file-unsafe"},
		{"directory", "it has no content", privatefile.Secret, func(p string) error {
			return errors.Join(os.Remove(p), os.Mkdir(p, 0o700))
		}, "server-file-unsafe"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := (privatefile.Writer{}).Replace(path, []byte("content")); err != nil {
				t.Fatal(err)
			}
			if tt.prepare != nil {
				if err := tt.prepare(path); err != nil {
					t.Fatal(err)
				}
			}
			_, err := privatefile.Read(path, tt.content)
			got := ""
			var list diag.List
			if errors.As(err, &list) {
				got = list[0].ID
			} else if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("%s: %v (-want +got):\n%s", tt.reason, err, d)
			}
		})
	}
}

func TestRead_ReportsMissingFile(t *testing.T) {
	if _, err := privatefile.Read(filepath.Join(t.TempDir(), "file"), privatefile.Secret); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestRead_LimitsTheSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := (privatefile.Writer{}).Replace(path, make([]byte, 1<<20+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := privatefile.Read(path, privatefile.Secret); err == nil {
		t.Error("read a file over the limit")
	}
}

func TestReplace_WritesPrivateFileOverOlderOnes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, p := range []string{path, privatefile.StagedPath(path)} {
		if err := os.WriteFile(p, []byte("of a crash"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := (privatefile.Writer{}).Replace(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := privatefile.Read(path, privatefile.Secret)
	if err != nil {
		t.Fatal(err)
	}
	got := []any{string(data), info.Mode()}
	if d := cmp.Diff([]any{"new", fs.FileMode(0o600)}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if _, err := os.Stat(privatefile.StagedPath(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary file exists: %v", err)
	}
}
