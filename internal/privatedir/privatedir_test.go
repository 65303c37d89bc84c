package privatedir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
)

// newBase returns a directory that only this user can write.
func newBase(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	noError(t, os.Chmod(dir, 0o700))
	return dir
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// create makes a directory that the test need not close.
func create(t *testing.T, bases ...string) *Dir {
	t.Helper()
	d, err := Create(0, bases...)
	noError(t, err)
	t.Cleanup(func() { noError(t, d.Close()) })
	return d
}

// entriesOf returns the names in a directory.
func entriesOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	noError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestCreate_MakesPrivateFiles(t *testing.T) {
	base := newBase(t)
	d, err := Create(0, base)
	noError(t, err)
	noError(t, d.WriteFile("id_ed25519", []byte("secret")))
	noError(t, d.WriteFile("a", nil))
	for path, want := range map[string]fs.FileMode{
		d.Path(): fs.ModeDir | 0o700, filepath.Join(d.Path(), "id_ed25519"): 0o600, filepath.Join(d.Path(), "a"): 0o600,
	} {
		info, err := os.Lstat(path)
		noError(t, err)
		if info.Mode() != want || uidOf(info) != os.Geteuid() {
			t.Errorf("%s has mode %v and belongs to user %d", path, info.Mode(), uidOf(info))
		}
	}
	names, err := d.List()
	noError(t, err)
	if diff := cmp.Diff([]string{"a", "id_ed25519"}, names); diff != "" {
		t.Error(diff)
	}
	data, err := d.ReadFile("id_ed25519", 6)
	if string(data) != "secret" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := d.ReadFile("id_ed25519", 5); !errors.As(err, new(*bounded.LimitError)) {
		t.Errorf("a file above the limit: %v", err)
	}
	noError(t, d.Close())
	if names := entriesOf(t, base); len(names) > 0 {
		t.Errorf("remains after Close: %v", names)
	}
}

func TestWriteFile_RefusesNames(t *testing.T) {
	d := create(t, newBase(t))
	noError(t, d.WriteFile("file", nil))
	noError(t, os.Symlink("/etc/passwd", filepath.Join(d.Path(), "link")))
	for _, tc := range []struct {
		name, reason, file string
		want               error
	}{
		{"empty", "it is the directory", "", fs.ErrInvalid},
		{"this directory", "it is the directory", ".", fs.ErrInvalid},
		{"parent", "it is outside", "..", fs.ErrInvalid},
		{"file of the parent", "it is outside", "../x", fs.ErrInvalid},
		{"absolute", "it is outside", "/x", fs.ErrInvalid},
		{"directory", "files have no directories", "a/b", fs.ErrInvalid},
		{"backslash", "it is a separator elsewhere", `a\b`, fs.ErrInvalid},
		{"null byte", "the kernel ends the name there", "a\x00b", fs.ErrInvalid},
		{"long", "no file system has it", strings.Repeat("a", maxName+1), fs.ErrInvalid},
		{"existing", "a second file is a mistake of the caller", "file", fs.ErrExist},
		{"link", "it leads elsewhere", "link", fs.ErrExist},
		{"hidden", "it is an ordinary name", ".a", nil},
		{"dots", "it is an ordinary name", "..a", nil},
		{"longest", "it is within the limit", strings.Repeat("a", maxName), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := d.WriteFile(tc.file, []byte("x")); !errors.Is(err, tc.want) {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
	if names := entriesOf(t, filepath.Dir(d.Path())); len(names) != 1 {
		t.Errorf("a file was written outside: %v", names)
	}
}

func TestReadFile_RefusesOtherThanFiles(t *testing.T) {
	d := create(t, newBase(t))
	noError(t, os.Mkdir(filepath.Join(d.Path(), "directory"), 0o700))
	noError(t, os.Symlink("/etc/passwd", filepath.Join(d.Path(), "outside")))
	noError(t, d.WriteFile("file", []byte("content")))
	noError(t, os.Symlink("file", filepath.Join(d.Path(), "inside")))
	for _, name := range []string{"missing", "directory", "outside", "inside", "../x", ""} {
		if data, err := d.ReadFile(name, 10); err == nil || len(data) > 0 {
			t.Errorf("%q: %q, %v", name, data, err)
		}
	}
	names, err := d.List()
	noError(t, err)
	if !slices.Equal(names, []string{"file"}) {
		t.Errorf("List returns %v", names)
	}
}

// TestClose_FollowsNoLink checks that files to which links in the directory lead are kept.
func TestClose_FollowsNoLink(t *testing.T) {
	base, kept := newBase(t), newBase(t)
	noError(t, os.WriteFile(filepath.Join(kept, "file"), nil, 0o600))
	d, err := Create(0, base)
	noError(t, err)
	noError(t, os.MkdirAll(filepath.Join(d.Path(), "a", "b"), 0o700))
	noError(t, os.Symlink(kept, filepath.Join(d.Path(), "a", "b", "link")))
	noError(t, os.Symlink(filepath.Join(kept, "file"), filepath.Join(d.Path(), "link")))
	noError(t, d.Close())
	if names := entriesOf(t, kept); !slices.Equal(names, []string{"file"}) {
		t.Errorf("another directory has %v", names)
	}
	if names := entriesOf(t, base); len(names) > 0 {
		t.Errorf("remains after Close: %v", names)
	}
}

func TestClose_IsIdempotentAndReportsErrors(t *testing.T) {
	t.Run("twice", func(t *testing.T) {
		d, err := Create(0, newBase(t))
		noError(t, err)
		noError(t, d.Close())
		noError(t, d.Close())
		if err := d.WriteFile("a", nil); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a file was written after Close: %v", err)
		}
	})
	t.Run("removed", func(t *testing.T) {
		d, err := Create(0, newBase(t))
		noError(t, err)
		noError(t, os.RemoveAll(d.Path()))
		if err := d.WriteFile("a", nil); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a removed directory is not reported: %v", err)
		}
		noError(t, d.Close())
	})
	t.Run("replaced", func(t *testing.T) {
		d, err := Create(0, newBase(t))
		noError(t, err)
		noError(t, os.Rename(d.Path(), d.Path()+"-moved"))
		noError(t, os.Mkdir(d.Path(), 0o700))
		first := d.Close()
		if first == nil || !errors.Is(d.Close(), first) {
			t.Errorf("a replaced directory is not reported: %v", first)
		}
		if len(entriesOf(t, filepath.Dir(d.Path()))) != 2 {
			t.Error("the other directory was removed")
		}
	})
}

func TestCreate_KeepsDirectoriesInUse(t *testing.T) {
	base := newBase(t)
	first := create(t, base)
	noError(t, first.WriteFile("a", []byte("x")))
	create(t, base)
	if data, err := first.ReadFile("a", 1); err != nil || string(data) != "x" {
		t.Errorf("the first directory has %q, %v", data, err)
	}
}

// TestCreate_WorksWithManyCreators checks that creators that remove directories of ended
// processes never remove the directory of another creator.
func TestCreate_WorksWithManyCreators(t *testing.T) {
	base := newBase(t)
	const creators, rounds = 16, 20
	var ended sync.WaitGroup
	for i := range creators {
		ended.Go(func() {
			for j := range rounds {
				if err := createAndUse(base, fmt.Sprintf("%d-%d", i, j)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range creators { // directories of ended processes
		noError(t, os.Mkdir(filepath.Join(base, fmt.Sprintf("%sended-%d", prefix, i)), 0o700))
	}
	ended.Wait()
	create(t, base)
	if names := entriesOf(t, base); len(names) != 1 {
		t.Errorf("remains: %v", names)
	}
}

func createAndUse(base, text string) error {
	d, err := Create(0, base)
	if err != nil {
		return err
	}
	if err := d.WriteFile("a", []byte(text)); err != nil {
		return errors.Join(err, d.Close())
	}
	data, err := d.ReadFile("a", 100)
	if err == nil && !bytes.Equal(data, []byte(text)) {
		err = fmt.Errorf("it has the content of another directory: %s", data)
	}
	return errors.Join(err, d.Close())
}

func TestMakeDir_UsesNoExistingEntry(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		prepare      func(path, other string) error
	}{
		{"link", "it leads to another directory", func(path, other string) error { return os.Symlink(other, path) }},
		{"broken link", "a directory would be made at its end", func(path, other string) error { return os.Symlink(other+"-new", path) }},
		{"file", "it is not a directory", func(path, _ string) error { return os.WriteFile(path, []byte("x"), 0o600) }},
		{"directory", "it can have another process", func(path, _ string) error { return os.Mkdir(path, 0o700) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base, other := newBase(t), newBase(t)
			noError(t, tc.prepare(filepath.Join(base, "a"), other))
			before, err := os.Lstat(filepath.Join(base, "a"))
			noError(t, err)
			parent, err := os.OpenRoot(base)
			noError(t, err)
			names := []string{"a", "b"}
			d, err := makeDirIn(parent, func() string {
				next := names[0]
				names = names[1:]
				return next
			})
			noError(t, err)
			noError(t, d.WriteFile("secret", nil))
			if want := filepath.Join(base, "b"); d.Path() != want {
				t.Errorf("%s: %s is used", tc.reason, d.Path())
			}
			noError(t, d.Close())
			after, err := os.Lstat(filepath.Join(base, "a"))
			if err != nil || !os.SameFile(before, after) || len(entriesOf(t, other)) > 0 {
				t.Errorf("%s: it was changed: %v", tc.reason, err)
			}
		})
	}
}

func TestMakeDir_FailsIfEachNameExists(t *testing.T) {
	base := newBase(t)
	noError(t, os.Mkdir(filepath.Join(base, "a"), 0o700))
	parent, err := os.OpenRoot(base)
	noError(t, err)
	defer parent.Close()
	if _, err := makeDirIn(parent, func() string { return "a" }); !errors.Is(err, errGone) {
		t.Errorf("got %v", err)
	}
}

func TestCreate_RemovesOnlyPrivateDirectories(t *testing.T) {
	base, other := newBase(t), newBase(t)
	noError(t, os.WriteFile(filepath.Join(other, "file"), nil, 0o600))
	at := func(name string) string { return filepath.Join(base, name) }
	noError(t, os.Symlink(other, at(prefix+"link")))
	noError(t, os.WriteFile(at(prefix+"file"), nil, 0o600))
	noError(t, os.Mkdir(at("directory"), 0o700))
	noError(t, os.MkdirAll(at(prefix+"ended/a/b"), 0o700))
	noError(t, os.WriteFile(at(prefix+"ended/a/b/file"), nil, 0o400))
	noError(t, os.Symlink(other, at(prefix+"ended/link")))
	d := create(t, base)
	want := []string{"directory", filepath.Base(d.Path()), prefix + "file", prefix + "link"}
	slices.Sort(want)
	if diff := cmp.Diff(want, entriesOf(t, base)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if names := entriesOf(t, other); !slices.Equal(names, []string{"file"}) {
		t.Errorf("the target of a link has %v", names)
	}
}

func TestCreate_RefusesUnsafeBases(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		prepare      func(t *testing.T, dir string) string
	}{
		{"missing", "nothing can be made in it", func(_ *testing.T, dir string) string { return filepath.Join(dir, "a") }},
		{"file", "nothing can be made in it", func(t *testing.T, dir string) string {
			noError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
			return filepath.Join(dir, "a")
		}},
		{"relative", "another process can have another working directory", func(*testing.T, string) string { return "." }},
		{"empty", "it is not a path", func(*testing.T, string) string { return "" }},
		{"writable without sticky bit", "other users can replace entries", func(t *testing.T, dir string) string {
			noError(t, os.Chmod(dir, 0o777))
			return dir
		}},
		{"writable by a group", "other users can replace entries", func(t *testing.T, dir string) string {
			noError(t, os.Chmod(dir, 0o770))
			return dir
		}},
		{"unsafe parent", "other users can replace the base", func(t *testing.T, dir string) string {
			noError(t, os.Mkdir(filepath.Join(dir, "a"), 0o700))
			noError(t, os.Chmod(dir, 0o777))
			return filepath.Join(dir, "a")
		}},
		{"link to an unsafe parent", "other users can replace the base", func(t *testing.T, dir string) string {
			noError(t, os.MkdirAll(filepath.Join(dir, "open", "a"), 0o700))
			noError(t, os.Chmod(filepath.Join(dir, "open"), 0o777))
			noError(t, os.Symlink("open/a", filepath.Join(dir, "link")))
			return filepath.Join(dir, "link")
		}},
		{"endless link", "it has no end", func(t *testing.T, dir string) string {
			noError(t, os.Symlink("a", filepath.Join(dir, "a")))
			return filepath.Join(dir, "a")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := tc.prepare(t, newBase(t))
			d, err := Create(0, base)
			var list diag.List
			if !errors.As(err, &list) || list[0].ID != idUnavailable || list[0].Hint == "" {
				t.Fatalf("%s: %v, %v", tc.reason, d, err)
			}
			good := newBase(t)
			if d := create(t, base, good); filepath.Dir(d.Path()) != resolve(t, good) {
				t.Errorf("%s: the next base is not used, but %s", tc.reason, d.Path())
			}
		})
	}
}

func resolve(t *testing.T, path string) string {
	t.Helper()
	real, err := filepath.EvalSymlinks(path)
	noError(t, err)
	return real
}

func TestCreate_AcceptsSafeBases(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		prepare      func(t *testing.T, dir string) string
	}{
		{"sticky bit", "other users can only add entries, as in /tmp", func(t *testing.T, dir string) string {
			noError(t, os.Chmod(dir, fs.ModeSticky|0o777))
			return dir
		}},
		{"link of this user", "no other user can change it", func(t *testing.T, dir string) string {
			noError(t, os.Mkdir(filepath.Join(dir, "a"), 0o700))
			noError(t, os.Symlink("../"+filepath.Base(dir)+"/a", filepath.Join(dir, "link")))
			return filepath.Join(dir, "link")
		}},
		{"absolute link", "no other user can change it", func(t *testing.T, dir string) string {
			noError(t, os.Mkdir(filepath.Join(dir, "a"), 0o700))
			noError(t, os.Symlink(dir, filepath.Join(dir, "link")))
			return filepath.Join(dir, "link", "a")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := tc.prepare(t, newBase(t))
			d := create(t, base)
			if got, want := filepath.Dir(d.Path()), resolve(t, base); got != want {
				t.Errorf("%s: in %s, want %s", tc.reason, got, want)
			}
		})
	}
}
