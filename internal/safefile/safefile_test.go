package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/testutil/requireroot"
)

// user is whose directories root works in, in these tests.
const user, other = 12345, 54321

// A world is a home of a user, and files of root and of another user.
type world struct {
	t   *testing.T
	dir string
}

func newWorld(t *testing.T) world {
	t.Helper()
	requireroot.Need(t, "giving files to others")
	w := world{t, t.TempDir()}
	w.makeDir("home", user)
	w.makeDir("home/cache", user)
	w.makeDir("home/disk", user)
	w.makeDir("etc", 0)
	w.makeDir("etc/below", user)
	w.makeDir("other", other)
	w.writeFile("etc/shadow", "root:x\n", 0)
	w.writeFile("home/cache/file", "mine\n", user)
	return w
}

func (w world) pathOf(name string) string { return filepath.Join(w.dir, name) }

func (w world) noError(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w world) makeDir(name string, uid int) {
	w.t.Helper()
	w.noError(errors.Join(os.MkdirAll(w.pathOf(name), 0o755), os.Chown(w.pathOf(name), uid, uid)))
}

func (w world) writeFile(name, text string, uid int) {
	w.t.Helper()
	w.noError(errors.Join(os.WriteFile(w.pathOf(name), []byte(text), 0o600), os.Chown(w.pathOf(name), uid, uid)))
}

// makeLink replaces a file or directory with a link of a user. The target is a path of
// the world, or relative if it begins with "./".
func (w world) makeLink(name, target string, uid int) {
	w.t.Helper()
	if !strings.HasPrefix(target, "./") {
		target = w.pathOf(target)
	}
	w.noError(errors.Join(os.RemoveAll(w.pathOf(name)), os.Symlink(target, w.pathOf(name)), os.Lchown(w.pathOf(name), uid, uid)))
}

// listFiles returns the files of root and of other users: modes, owners and content.
func (w world) listFiles() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for _, top := range []string{"etc", "other"} {
		w.noError(filepath.WalkDir(w.pathOf(top), func(path string, _ fs.DirEntry, err error) error {
			w.noError(err)
			info, err := os.Lstat(path)
			w.noError(err)
			text := ""
			if info.Mode().IsRegular() {
				b, err := os.ReadFile(path)
				w.noError(err)
				text = string(b)
			}
			all[path] = info.Mode().String() + " " + string(rune('0'+uidOf(info)%10)) + text
			return nil
		}))
	}
	return all
}

func wantError(t *testing.T, err, want error) {
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

func TestReach_RefusesUserLinksToForeignFiles(t *testing.T) {
	foreign := &ForeignError{}
	for _, tt := range []struct {
		name, path string
		plant      func(world)
		want       error
	}{
		{"a file of the user", "home/cache/file", nil, nil},
		{"missing", "home/cache/none", nil, fs.ErrNotExist},
		{"in a missing directory", "home/none/file", nil, fs.ErrNotExist},
		{"below a file", "home/cache/file/x", nil, syscall.ENOTDIR},
		{"root's by name", "etc/shadow", nil, nil},
		{"a link to a file of root's", "home/cache/file", func(w world) { w.makeLink("home/cache/file", "etc/shadow", user) }, foreign},
		{"a directory that is a link", "home/cache/shadow", func(w world) { w.makeLink("home/cache", "etc", user) }, foreign},
		{"a directory above that is a link", "home/cache/below/x", func(w world) { w.makeLink("home/cache", "etc", user) }, foreign},
		{"a link of root's that the user has moved", "home/cache/shadow", func(w world) { w.makeLink("home/cache", "etc", 0) }, foreign},
		{"to another user's", "home/cache/x", func(w world) { w.makeLink("home/cache", "other", user) }, foreign},
		{
			"link after link", "home/cache/shadow",
			func(w world) { w.makeLink("home/mid", "etc", user); w.makeLink("home/cache", "./mid", user) }, foreign,
		},
		{"to nothing in a directory of root's", "home/cache/file", func(w world) { w.makeLink("home/cache/file", "etc/new", user) }, foreign},
		{"to a directory that would be made", "home/cache/file", func(w world) { w.makeLink("home/cache", "etc/new/x", user) }, foreign},
		{"to itself", "home/cache/file", func(w world) { w.makeLink("home/cache", "./cache", user) }, syscall.ELOOP},
		{"to another disk of the user's", "home/cache/file", func(w world) {
			w.makeLink("home/cache", "home/disk", user)
			w.writeFile("home/disk/file", "", user)
		}, nil},
		{"to a directory of root's below the user's", "home/cache/in/file", func(w world) {
			w.makeLink("home/cache", "home/disk", user)
			w.makeDir("home/disk/in", 0)
			w.writeFile("home/disk/in/file", "", 0)
		}, nil},
		{"to the user's own directory in root's", "home/cache", func(w world) { w.makeLink("home/cache", "etc/below", user) }, nil},
		{"a link of root's in a directory of root's", "system/shadow", func(w world) { w.makeLink("system", "etc", 0) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.plant != nil {
				tt.plant(w)
			}
			_, err := Stat(w.pathOf(tt.path))
			wantError(t, err, tt.want)
		})
	}
}

// TestFunctions_DoNotFollowPlantedLinks replaces a directory or a file of the user with a
// link. Root then reads, changes, removes and gives away no files of others.
func TestFunctions_DoNotFollowPlantedLinks(t *testing.T) {
	for name, do := range map[string]func(w world, path string) error{
		"open":     func(_ world, path string) error { _, err := Open(path); return err },
		"read":     func(_ world, path string) error { _, err := ReadFile(path, 100); return err },
		"append":   func(_ world, path string) error { _, err := OpenFile(path, os.O_WRONLY|os.O_APPEND, 0); return err },
		"truncate": func(_ world, path string) error { _, err := OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0); return err },
		"create": func(_ world, path string) error {
			_, err := OpenFile(path+".new", os.O_RDWR|os.O_CREATE, 0o600)
			return err
		},
		"create only": func(_ world, path string) error {
			_, err := OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
			return err
		},
		"write":       func(_ world, path string) error { return WriteFile(path, []byte("evil"), 0o666) },
		"write new":   func(_ world, path string) error { return WriteFile(path+".new", []byte("evil"), 0o666) },
		"temporary":   func(_ world, path string) error { _, err := CreateTemp(filepath.Dir(path), ".x-*"); return err },
		"directory":   func(_ world, path string) error { return MkdirAll(path+"/x/y", 0o755) },
		"directories": func(_ world, path string) error { return MkdirAll(filepath.Dir(path)+"/x/y", 0o755) },
		"scratch":     func(_ world, path string) error { _, err := MkdirTemp(filepath.Dir(path), ".x-*", 0o755); return err },
		"list":        func(_ world, path string) error { _, err := ReadDir(filepath.Dir(path)); return err },
		"root":        func(_ world, path string) error { _, err := OpenRoot(filepath.Dir(path)); return err },
		"remove":      func(_ world, path string) error { return Remove(path) },
		"remove all":  func(_ world, path string) error { return RemoveAll(path) },
		"symlink":     func(_ world, path string) error { return Symlink("x", path+".link") },
		"link there":  func(w world, path string) error { return Link(w.pathOf("home/mine"), path+".new") },
		"link from":   func(w world, path string) error { return Link(path, w.pathOf("home/new")) },
		"move there":  func(w world, path string) error { return Rename(w.pathOf("home/mine"), path) },
		"move away":   func(w world, path string) error { return Rename(path, w.pathOf("home/new")) },
		"give":        func(_ world, path string) error { return Lchown(path, user, user) },
		"stat":        func(_ world, path string) error { _, err := Stat(path); return err },
	} {
		for place, swap := range map[string]func(w world){
			"the directory": func(w world) { w.makeLink("home/cache", "etc", user) },
			"one above": func(w world) {
				w.makeDir("etc/cache", 0)
				w.writeFile("etc/cache/shadow", "", 0)
				w.makeLink("home", "etc", user)
			},
			"the file":    func(w world) { w.makeLink("home/cache/shadow", "etc/shadow", user) },
			"a hard link": func(w world) { w.noError(os.Link(w.pathOf("etc/shadow"), w.pathOf("home/cache/shadow"))) },
		} {
			t.Run(name+", "+place, func(t *testing.T) {
				w := newWorld(t)
				w.writeFile("home/mine", "mine\n", user)
				swap(w)
				before := w.listFiles()
				err := do(w, w.pathOf("home/cache/shadow"))
				if d := cmp.Diff(before, w.listFiles()); d != "" {
					t.Errorf("files of others (-before +after), error %v:\n%s", err, d)
				}
				if place != "the file" && place != "a hard link" {
					wantError(t, err, &ForeignError{})
				}
			})
		}
	}
}

// TestFunctions_BehaveLikePackageOS: without links, the functions behave like the
// functions of package os.
func TestFunctions_BehaveLikePackageOS(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(MkdirAll(path("a/b"), 0o755))
	must(MkdirAll(path("a/b"), 0o755))
	must(WriteFile(path("a/b/f"), []byte("one"), 0o640))
	must(WriteFile(path("a/b/f"), []byte("two"), 0o644))
	must(Symlink("b", path("a/l")))
	must(Link(path("a/b/f"), path("a/g")))
	must(Rename(path("a/g"), path("a/b/g")))
	scratch, err := MkdirTemp(path("a"), ".s-*", 0o711)
	must(err)
	must(RemoveAll(scratch))
	must(RemoveAll(path("none/x")))
	f, err := CreateTemp(path("a"), ".t-*")
	must(err)
	_, err = f.WriteString("three")
	must(errors.Join(err, Commit(f, path("a/t"))))
	f, err = OpenFile(path("a/t"), os.O_WRONLY|os.O_APPEND, 0)
	must(err)
	_, err = f.WriteString("+")
	must(errors.Join(err, f.Close()))
	got := map[string]string{}
	for _, name := range []string{"a/b/f", "a/b/g", "a/l/f", "a/t"} {
		text, err := ReadFile(path(name), 100)
		must(err)
		got[name] = string(text)
	}
	if d := cmp.Diff(map[string]string{"a/b/f": "two", "a/b/g": "two", "a/l/f": "two", "a/t": "three+"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if info, err := Stat(path("a/b/f")); err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	entries, err := ReadDir(path("a"))
	must(err)
	if len(entries) != 3 {
		t.Errorf("remaining files: %v", entries)
	}
	if target, err := Readlink(path("a/l")); err != nil || target != "b" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	for _, err := range []error{Remove(path("none")), MkdirAll(path("a/t/x"), 0o755), Rename(path("none"), path("x"))} {
		if err == nil {
			t.Error("an impossible operation succeeded")
		}
	}
	must(syscall.Mkfifo(path("pipe"), 0o600))
	if _, err := Open(path("pipe")); err == nil {
		t.Error("a pipe was opened")
	}
}

func TestRootOnly_IsFalseIfOthersCanWrite(t *testing.T) {
	w := newWorld(t)
	for path, want := range map[string]bool{
		"/": true, "/proc/version": true, w.pathOf("etc/shadow"): false,
		w.pathOf("home/cache/file"): false,
	} {
		if got := RootOnly(path); got != want {
			t.Errorf("%s: %t, want %t", path, got, want)
		}
	}
}
