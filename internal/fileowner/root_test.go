package fileowner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestOpenRoot_RefusesLinksToForeignDirectories(t *testing.T) {
	to, other := testOwner(t), &Owner{UID: 54321, GID: 54321}
	dir := t.TempDir()
	path := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	if err := errors.Join(
		os.MkdirAll(path("home", "roots"), 0o755), os.MkdirAll(path("etc", "below"), 0o755),
		os.Mkdir(path("other"), 0o755), os.Mkdir(path("big"), 0o755),
		os.Symlink(path("etc"), path("home", "link")), os.Symlink(path("big"), path("home", "elsewhere")), os.Symlink("etc", path("system")),
		os.Symlink(path("etc"), path("loop-out")), os.Symlink("loop", path("loop")), os.WriteFile(path("file"), nil, 0o600),
		to.GiveFiles(path("home"), path("home", "link"), path("home", "elsewhere"), path("big")), other.GiveFiles(path("other")),
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

func TestMakeRoot_CreatesNothingThroughLink(t *testing.T) {
	to, dir := testOwner(t), t.TempDir()
	home, etc := filepath.Join(dir, "home"), filepath.Join(dir, "etc")
	if err := errors.Join(
		os.Mkdir(home, 0o755), os.Mkdir(etc, 0o755), os.Symlink(etc, filepath.Join(home, ".local")),
		to.GiveFiles(home, filepath.Join(home, ".local")),
	); err != nil {
		t.Fatal(err)
	}
	_, err := to.MakeRoot(filepath.Join(home, ".local", "share", "slipway"), 0o700)
	wantOrForeign(t, err, &ForeignError{})
	if left, err := os.ReadDir(etc); err != nil || len(left) > 0 {
		t.Errorf("root made %v in a directory that is not the owner's (%v)", left, err)
	}
}

func TestOpenFile_RefusesForeignAndIrregularFiles(t *testing.T) {
	to, other := testOwner(t), &Owner{UID: 54321, GID: 54321}
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
		{
			"another user's",
			to, func(_, lock string) error { return errors.Join(os.WriteFile(lock, nil, 0o600), other.GiveFiles(lock)) }, &ForeignError{},
		},
		{"a pipe", to, func(_, lock string) error { return syscall.Mkfifo(lock, 0o600) }, &ForeignError{}},
		{"a directory", to, func(_, lock string) error { return os.Mkdir(lock, 0o700) }, &ForeignError{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			shadow, home := filepath.Join(dir, "shadow"), filepath.Join(dir, "home")
			if err := errors.Join(os.Mkdir(home, 0o700), to.GiveFiles(home), os.WriteFile(shadow, []byte("root"), 0o600),
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
					t.Error("the file does not belong to the owner")
				}
			}
			if ownerOf(t, shadow) != before {
				t.Error("a file elsewhere was given to the owner")
			}
		})
	}
}

func TestReplaceFile_KeepsModeAndOwner(t *testing.T) {
	to := testOwner(t)
	dir := t.TempDir()
	file, link, shadow := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "shadow")
	if err := errors.Join(os.WriteFile(file, []byte("old"), 0o640), os.WriteFile(shadow, []byte("root"), 0o600),
		os.Symlink(shadow, link)); err != nil {
		t.Fatal(err)
	}
	if err := to.ReplaceFile(file, []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o640 || ownerOf(t, file) != *to {
		t.Errorf("mode %s of user %d (%v), want the previous mode and owner", info.Mode(), ownerOf(t, file).UID, err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "new" {
		t.Errorf("content %q (%v)", b, err)
	}
	wantOrForeign(t, to.ReplaceFile(link, []byte("new"), 0o644), &ForeignError{})
	if b, err := os.ReadFile(shadow); err != nil || string(b) != "root" {
		t.Errorf("the target of a link has %q (%v)", b, err)
	}
	// A name that cannot be had: nothing is left.
	if err := to.ReplaceFile(filepath.Join(dir, "none", "file"), nil, 0o644); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a directory that is missing: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 3 {
		t.Errorf("remaining files: %v (%v)", left, err)
	}
}

func TestCheckLinks_RefusesLinksToForeignDirectories(t *testing.T) {
	to := testOwner(t)
	for _, tt := range []struct {
		name, link, target string
		want               error
	}{
		{"none", "file", "", nil},
		{"in the directory", "bundles/v1", "sha256-1", nil},
		{"to nothing", "bundles/v1", "none", nil},
		{"to another disk of the owner's", "bundles", "../disk", nil},
		{"out", "bundles", "../etc", &ForeignError{}},
		{"out, by its whole name", "bundles/v1", "/etc", &ForeignError{}},
		{"of a tree of packages", "components/base/etc/alternatives", "/etc/alternatives", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			cache := filepath.Join(dir, "cache")
			link := filepath.Join(cache, tt.link)
			if err := errors.Join(os.Mkdir(filepath.Join(dir, "etc"), 0o755), os.Mkdir(filepath.Join(dir, "disk"), 0o755),
				os.MkdirAll(filepath.Dir(link), 0o755),
				to.GiveFiles(cache, filepath.Join(dir, "disk")), to.GiveTree(cache)); err != nil {
				t.Fatal(err)
			}
			if tt.target != "" {
				if err := errors.Join(os.Mkdir(filepath.Join(cache, "sha256-1"), 0o755), os.Symlink(tt.target, link)); err != nil {
					t.Fatal(err)
				}
			}
			wantOrForeign(t, to.CheckLinks(cache), tt.want)
		})
	}
	if err := errors.Join(to.CheckLinks(filepath.Join(t.TempDir(), "none")), (*Owner)(nil).CheckLinks("/")); err != nil {
		t.Error(err)
	}
}

// TestGiveFiles_GivesNothingThroughLink: a directory that has become a link since the file was
// written leads root to no file of others.
func TestGiveFiles_GivesNothingThroughLink(t *testing.T) {
	to, dir := testOwner(t), t.TempDir()
	home, etc := filepath.Join(dir, "home"), filepath.Join(dir, "etc")
	shadow := filepath.Join(etc, "shadow")
	if err := errors.Join(os.Mkdir(home, 0o755), os.Mkdir(etc, 0o755), os.WriteFile(shadow, nil, 0o600),
		os.Symlink(etc, filepath.Join(home, "out")), os.Link(shadow, filepath.Join(home, "hard")),
		to.GiveFiles(home), os.Lchown(filepath.Join(home, "out"), to.UID, to.GID)); err != nil {
		t.Fatal(err)
	}
	before := ownerOf(t, shadow)
	for name, give := range map[string]func() error{
		"a file":       func() error { return to.GiveFiles(filepath.Join(home, "out", "shadow")) },
		"a hard link":  func() error { return to.GiveFiles(filepath.Join(home, "hard")) },
		"what is made": func() error { return to.GiveMade([]string{filepath.Join(home, "out", "shadow")}) },
		"a tree":       func() error { return to.GiveTree(filepath.Join(home, "out")) },
		"a replaced one": func() error {
			return to.ReplaceFile(filepath.Join(home, "out", "shadow"), []byte("evil"), 0o600)
		},
		"parents": func() error {
			_, _, err := to.MakeParent(filepath.Join(home, "out", "new", "config"), 0o755)
			return err
		},
	} {
		wantOrForeign(t, give(), &ForeignError{})
		if ownerOf(t, shadow) != before {
			t.Errorf("%s: a file of root's was given away", name)
		}
	}
	if text, err := os.ReadFile(shadow); err != nil || len(text) > 0 {
		t.Errorf("a file of root has %q, %v", text, err)
	}
}
