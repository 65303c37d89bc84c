package owner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestOpenRoot(t *testing.T) {
	to, other := someone(t), &Owner{UID: 54321, GID: 54321}
	dir := t.TempDir()
	path := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	if err := errors.Join(
		os.MkdirAll(path("home", "roots"), 0o755), os.MkdirAll(path("etc", "below"), 0o755), os.Mkdir(path("other"), 0o755), os.Mkdir(path("big"), 0o755),
		os.Symlink(path("etc"), path("home", "link")), os.Symlink(path("big"), path("home", "elsewhere")), os.Symlink("etc", path("system")),
		os.Symlink(path("etc"), path("loop-out")), os.Symlink("loop", path("loop")), os.WriteFile(path("file"), nil, 0o600),
		to.Give(path("home"), path("home", "link"), path("home", "elsewhere"), path("big")), other.Give(path("other")),
	); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, dir string
		owner     *Owner
		want      error // nil, a *ForeignError, or one that errors.Is knows
	}{
		{"the owner's", path("home"), to, nil},
		{"root's in the owner's, as an interrupted run leaves it", path("home", "roots"), to, nil},
		{"the owner's elsewhere, by a link", path("home", "elsewhere"), to, nil},
		{"root's, by name", path("etc"), to, nil},
		{"root's, by a link of root's", path("system", "below"), to, nil},
		{"root's, by a link of the owner's", path("home", "link"), to, &ForeignError{}},
		{"below a link of the owner's", path("home", "link", "below"), to, &ForeignError{}},
		{"another's, by name", path("other"), to, nil},
		{"by a link, for nobody else", path("home", "link"), nil, nil},
		{"a file", path("file"), to, syscall.ENOTDIR},
		{"missing", path("none"), to, fs.ErrNotExist},
		{"a link to itself", path("loop"), to, syscall.ELOOP},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, err := tt.owner.OpenRoot(tt.dir)
			if root != nil {
				defer root.Close()
			}
			wantOrForeign(t, err, tt.want)
		})
	}
}

func wantOrForeign(t *testing.T, err, want error) {
	t.Helper()
	var foreign *ForeignError
	switch {
	case want == nil && err != nil:
		t.Errorf("error %v, want none", err)
	case want != nil && errors.As(want, &foreign):
		if !errors.As(err, &foreign) {
			t.Errorf("error %v, want a *ForeignError", err)
		}
	case !errors.Is(err, want):
		t.Errorf("error %v, want %v", err, want)
	}
}

func TestMakeRootThroughALink(t *testing.T) {
	to, dir := someone(t), t.TempDir()
	home, etc := filepath.Join(dir, "home"), filepath.Join(dir, "etc")
	if err := errors.Join(
		os.Mkdir(home, 0o755), os.Mkdir(etc, 0o755), os.Symlink(etc, filepath.Join(home, ".local")),
		to.Give(home, filepath.Join(home, ".local")),
	); err != nil {
		t.Fatal(err)
	}
	_, err := to.MakeRoot(filepath.Join(home, ".local", "share", "slipway"), 0o700)
	wantOrForeign(t, err, &ForeignError{})
	if left, err := os.ReadDir(etc); err != nil || len(left) > 0 {
		t.Errorf("root made %v in a directory that is not the owner's (%v)", left, err)
	}
}

func TestOpenFile(t *testing.T) {
	to, other := someone(t), &Owner{UID: 54321, GID: 54321}
	for _, tt := range []struct {
		name  string
		owner *Owner
		plant func(shadow, lock string) error
		want  error
	}{
		{"new", to, func(string, string) error { return nil }, nil},
		{"root's, as an interrupted run leaves it", to, func(_, lock string) error { return os.WriteFile(lock, nil, 0o600) }, nil},
		{"a link out", to, os.Symlink, &ForeignError{}},
		{"a link in the directory", to, func(_, lock string) error {
			return errors.Join(os.WriteFile(lock+".other", nil, 0o600), os.Symlink("lock.other", lock))
		}, &ForeignError{}},
		{"a link to nothing", to, func(_, lock string) error { return os.Symlink("none", lock) }, &ForeignError{}},
		{"a hard link", to, os.Link, &ForeignError{}},
		{"a hard link of the user's own", nil, os.Link, nil},
		{"another user's", to, func(_, lock string) error { return errors.Join(os.WriteFile(lock, nil, 0o600), other.Give(lock)) }, &ForeignError{}},
		{"a pipe", to, func(_, lock string) error { return syscall.Mkfifo(lock, 0o600) }, &ForeignError{}},
		{"a directory", to, func(_, lock string) error { return os.Mkdir(lock, 0o700) }, &ForeignError{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			shadow, home := filepath.Join(dir, "shadow"), filepath.Join(dir, "home")
			if err := errors.Join(os.Mkdir(home, 0o700), to.Give(home), os.WriteFile(shadow, []byte("root"), 0o600),
				tt.plant(shadow, filepath.Join(home, "lock"))); err != nil {
				t.Fatal(err)
			}
			before := ownerOf(t, shadow)
			root, err := tt.owner.OpenRoot(home)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			f, err := tt.owner.OpenFile(root, "lock", 0)
			wantOrForeign(t, err, tt.want)
			if err == nil {
				defer f.Close()
				if tt.owner != nil && ownerOf(t, f.Name()) != *to {
					t.Error("the file is not the owner's")
				}
			}
			if ownerOf(t, shadow) != before {
				t.Error("a file elsewhere has become the owner's")
			}
		})
	}
}
