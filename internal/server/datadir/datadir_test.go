package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/testutil/requireroot"
	"slipway.dev/slipway/internal/testutil/smalldisk"
)

// otherUser is a user who is neither root nor the user of the tests.
const otherUser = 54321

// idOf returns the id of the first message in an error, "" for nil.
func idOf(err error) string {
	var list diag.List
	switch {
	case err == nil:
		return ""
	case errors.As(err, &list):
		return list[0].ID
	}
	return "an error without an id: " + err.Error()
}

// wantID fails the test if an error has another id; "" is for no error.
func wantID(t *testing.T, err error, id string) {
	t.Helper()
	if got := idOf(err); got != id {
		t.Errorf("id %q, want %q: %v", got, id, err)
	}
}

// shortDir returns a directory whose path is short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// openClosed opens a directory and closes it again, and returns the id of the server.
func openClosed(t *testing.T, path string) string {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	closeDir(t, d)
	return d.ServerID()
}

func closeDir(t *testing.T, d *Dir) {
	t.Helper()
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// listTree returns the modes and sizes of all files in a directory, but not of the lock.
func listTree(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && e.Name() != lockFile {
			size := info.Size()
			if info.IsDir() {
				size = 0
			}
			list = append(list, fmt.Sprintf("%s %s %d", strings.TrimPrefix(path, dir), info.Mode(), size))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestOpen_CreatesMissingOrEmptyDirectory(t *testing.T) {
	for _, tt := range []struct {
		name, reason string
		plant        func(dir, path string) error
	}{
		{"missing", "the first start", func(string, string) error { return nil }},
		{"empty", "mkdir and systemd make it with mode 0755", func(_, path string) error { return os.MkdirAll(path, 0o755) }},
		{"root of a disk", "mkfs creates lost+found", func(_, path string) error {
			return os.MkdirAll(filepath.Join(path, lostAndFound), 0o755)
		}},
		{"parent is a link", "administrators move directories to other disks", func(dir, path string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "disk"), 0o755), os.Symlink("../"+filepath.Base(dir)+"/disk", filepath.Dir(path)))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := shortDir(t)
			path := filepath.Join(dir, "a", "data")
			if err := tt.plant(dir, path); err != nil {
				t.Fatal(err)
			}
			d, err := Open(path)
			if err != nil {
				t.Fatalf("%v (%s)", err, tt.reason)
			}
			defer d.Close()
			info, err := ReadInfo(path)
			if err != nil || info.ServerID != d.ServerID() || !idPattern.MatchString(info.ServerID) || info.Format != Format || info.Program == "" {
				t.Errorf("%+v, %v", info, err)
			}
			if !info.Created.Equal(d.Created()) || time.Since(info.Created) < 0 {
				t.Errorf("created %s and %s", info.Created, d.Created())
			}
			for _, name := range append(slices.Concat(required, optional), "") {
				if at, err := os.Lstat(d.Path(name)); err != nil || at.Mode() != fs.ModeDir|dirMode {
					t.Errorf("%s: %v, %v", name, at.Mode(), err)
				}
			}
			closeDir(t, d)
			if id := openClosed(t, path); id != d.ServerID() {
				t.Errorf("the id was %s and is %s", d.ServerID(), id)
			}
		})
	}
}

func TestOpen_RefusesUnusableDirectory(t *testing.T) {
	requireroot.Need(t, "giving files to another user")
	write := func(name, text string) func(string) error {
		return func(path string) error { return os.WriteFile(filepath.Join(path, name), []byte(text), 0o600) }
	}
	replace := func(name string, make func(at string) error) func(string) error {
		return func(path string) error {
			at := filepath.Join(path, name)
			return errors.Join(os.RemoveAll(at), make(at))
		}
	}
	link := func(at string) error { return os.Symlink("/etc", at) }
	const id, created = `"id":"6ba7b810-9dad-41d1-80b4-00c04fd430c8"`, `"created":"2026-01-02T03:04:05Z"`
	for _, tt := range []struct {
		name, reason string
		change       func(path string) error // of a data directory
		want         string
	}{
		{"other content", "a home directory is not taken", replace(infoFile, func(at string) error {
			return os.WriteFile(filepath.Join(filepath.Dir(at), "notes"), nil, 0o600)
		}), idForeign},
		{"no server.json", "it is not made again next to data", replace(infoFile, func(at string) error {
			return os.WriteFile(filepath.Join(filepath.Dir(at), "etcd", "db"), nil, 0o600)
		}), idDamaged},
		{"newer", "after a downgrade", write(infoFile, `{"format":2,"program":"v9","id":7,"more":1}`), idNewer},
		{"empty server.json", "a disk failed", write(infoFile, ""), idDamaged},
		{"truncated server.json", "a disk failed", write(infoFile, `{"format":1,`+id), idDamaged},
		{"two documents", "a disk failed", write(infoFile, `{"format":1,`+id+`,`+created+`}{}`), idDamaged},
		{"no format", "of another program", write(infoFile, `{`+id+`,`+created+`}`), idDamaged},
		{"no id", "of another program", write(infoFile, `{"format":1,`+created+`}`), idDamaged},
		{"no time", "of another program", write(infoFile, `{"format":1,`+id+`}`), idDamaged},
		{"server.json is a link", "root follows none", replace(infoFile, link), "server-file-unsafe"},
		{"no etcd", "its disk is not mounted", func(path string) error { return os.Remove(filepath.Join(path, "etcd")) }, idDamaged},
		{"a link in it", "root follows none", replace("audit", link), idUnsafe},
		{"a link for tmp", "files elsewhere are not removed", replace(temporaryDir, link), idUnsafe},
		{"a file in it", "a directory is expected", replace("audit", func(at string) error { return os.WriteFile(at, nil, 0o600) }), idUnsafe},
		{
			"open directory in it", "other users could read keys",
			func(path string) error { return os.Chmod(filepath.Join(path, "keys"), 0o750) }, idUnsafe,
		},
		{
			"other user's directory in it", "that user could replace keys",
			func(path string) error { return os.Chown(filepath.Join(path, "keys"), otherUser, -1) }, idUnsafe,
		},
		{"lock is a link", "its target would be overwritten", replace(lockFile, func(at string) error {
			return os.Symlink(filepath.Join(filepath.Dir(at), infoFile), at)
		}), idUnsafe},
		{"lock is a pipe", "it would wait", replace(lockFile, func(at string) error { return syscall.Mkfifo(at, 0o600) }), idUnsafe},
		{"lock is a directory", "it cannot be locked", replace(lockFile, func(at string) error { return os.Mkdir(at, 0o700) }), idUnsafe},
		{"open mode", "other users could read keys", func(path string) error { return os.Chmod(path, 0o755) }, idUnsafe},
		{"other owner", "that user could replace the content", func(path string) error { return os.Chown(path, otherUser, -1) }, idUnsafe},
		{"a link", "its parent is not checked", func(path string) error {
			return errors.Join(os.Rename(path, path+"-target"), os.Symlink(path+"-target", path))
		}, idUnsafe},
		{"a file", "it is not a directory", func(path string) error {
			return errors.Join(os.RemoveAll(path), os.WriteFile(path, nil, 0o600))
		}, idUnsafe},
		{"other owner of parent", "that user could replace it", func(path string) error {
			return os.Chown(filepath.Dir(path), otherUser, -1)
		}, idUnsafe},
		{"open parent", "other users could replace it", func(path string) error { return os.Chmod(filepath.Dir(path), 0o777) }, idUnsafe},
		{"parent open to group", "its members could replace it", func(path string) error {
			return os.Chmod(filepath.Dir(path), 0o770)
		}, idUnsafe},
		{
			"parent is like /tmp", "only the owner renames there",
			func(path string) error { return os.Chmod(filepath.Dir(path), 0o777|fs.ModeSticky) }, "",
		},
		{"unknown names", "an administrator leaves notes", write("notes", ""), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parent := filepath.Join(shortDir(t), "p")
			if err := os.Mkdir(parent, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(parent, "data")
			openClosed(t, path)
			if err := tt.change(path); err != nil {
				t.Fatal(err)
			}
			before := listTree(t, parent)
			d, err := Open(path)
			if err == nil {
				closeDir(t, d)
			}
			if idOf(err) != tt.want {
				t.Errorf("%v, want id %q: %s", err, tt.want, tt.reason)
			}
			if diff := cmp.Diff(before, listTree(t, parent)); diff != "" {
				t.Errorf("files changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestOpen_RefusesUnusablePath(t *testing.T) {
	requireroot.Need(t, "giving a link to another user")
	dir := shortDir(t)
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "target"), 0o700), os.Symlink("target", link),
		os.Lchown(link, otherUser, otherUser), os.Symlink("loop", filepath.Join(dir, "loop")),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(dir, strings.Repeat("x", maxSocketPath-len(filepath.Join(dir, "/", longestSocket))-1))
	for _, tt := range []struct{ name, path, want, reason string }{
		{"empty", "", idMissing, "it would be the current directory"},
		{"longest", long, "", "107 bytes"},
		{"too long", long + "x", idPathTooLong, "108 bytes"},
		{"link of another user", filepath.Join(link, "data"), idUnsafe, "the user can change its target"},
		{"below a file", filepath.Join(dir, "file", "data"), idUnsafe, "no directory can be made there"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := Open(tt.path)
			if err == nil {
				if n := len(d.Path(longestSocket)); n > maxSocketPath {
					t.Errorf("the path of a socket has %d bytes", n)
				}
				closeDir(t, d)
			}
			if idOf(err) != tt.want {
				t.Errorf("%v, want id %q: %s", err, tt.want, tt.reason)
			}
			if _, err := ReadInfo(tt.path); idOf(err) != tt.want {
				t.Errorf("ReadInfo: %v, want id %q", err, tt.want)
			}
		})
	}
	if _, err := Open(filepath.Join(dir, "loop", "data")); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a link to itself: %v", err)
	}
}

func TestOpen_LeavesForeignDirectoryUnchanged(t *testing.T) {
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"notes", restoreFile} {
		writeFile(t, filepath.Join(dir, name), "text")
	}
	for name, use := range map[string]func() error{
		"Open":            func() error { _, err := Open(dir); return err },
		"Create":          func() error { _, err := Create(dir, newInfo()); return err },
		"Replace":         func() error { _, err := Replace(dir); return err },
		"ReadInfo":        func() error { _, err := ReadInfo(dir); return err },
		"ReadHolder":      func() error { _, err := ReadHolder(dir); return err },
		"RestorePrevious": func() error { return RestorePrevious(dir, "") },
	} {
		t.Run(name, func(t *testing.T) {
			wantID(t, use(), idForeign)
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
				t.Errorf("%v, %v", entries, err)
			}
		})
	}
}

func TestOpen_StartsOnceAtTheSameTime(t *testing.T) {
	path := filepath.Join(shortDir(t), "data")
	const all = 8
	dirs, errs := make([]*Dir, all), make([]error, all)
	var group sync.WaitGroup
	for i := range all {
		group.Go(func() { dirs[i], errs[i] = Open(path) })
	}
	group.Wait()
	opened := 0
	for i, d := range dirs {
		if d != nil {
			opened++
			defer closeDir(t, d)
		} else {
			wantID(t, errs[i], idInUse)
		}
	}
	if opened != 1 {
		t.Errorf("%d have opened the directory, want 1", opened)
	}
}

func TestOpen_ContinuesAfterKillAtEachStep(t *testing.T) {
	killed := errors.New("killed")
	for kill := 1; ; kill++ {
		path := filepath.Join(shortDir(t), "data")
		n, step := 0, ""
		d, err := maker{after: func(s string) error {
			if n++; n == kill {
				step = s
				return killed
			}
			return nil
		}}.openDir(path)
		if err == nil {
			closeDir(t, d)
			if kill < 9 {
				t.Errorf("only %d steps", kill-1)
			}
			return
		}
		if !errors.Is(err, killed) {
			t.Fatal(err)
		}
		id := openClosed(t, path)
		if again := openClosed(t, path); again != id {
			t.Errorf("killed after %s: the id was %s and is %s", step, id, again)
		}
	}
}

func TestOpen_RemovesOnlyOwnTemporaryFiles(t *testing.T) {
	requireroot.Need(t, "giving a file to another user")
	dir := shortDir(t)
	path, outside := filepath.Join(dir, "data"), filepath.Join(dir, "outside")
	openClosed(t, path)
	in := func(name string) string { return filepath.Join(path, temporaryDir, name) }
	for _, name := range []string{outside, in("own"), in("other"), filepath.Join(path, ".hold.json.slipway-tmp")} {
		writeFile(t, name, "text")
	}
	if err := errors.Join(os.Chown(in("other"), otherUser, -1), os.Symlink(outside, in("link")), os.Mkdir(in("dir"), 0o700),
		os.Symlink(dir, in("up"))); err != nil {
		t.Fatal(err)
	}
	openClosed(t, path)
	var left []string
	entries, err := os.ReadDir(filepath.Join(path, temporaryDir))
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if diff := cmp.Diff([]string{"dir", "link", "other", "up"}, left); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Lstat(filepath.Join(path, ".hold.json.slipway-tmp")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an unfinished file is still there: %v", err)
	}
}

// TestDir_FullDiskIsNamed also covers a restart, which must not need space.
func TestDir_FullDiskIsNamed(t *testing.T) {
	smalldisk.RunApart(t, func(t *testing.T, disk string) {
		smalldisk.Mount(t, disk, "256k")
		path, ballast := filepath.Join(disk, "data"), filepath.Join(disk, "ballast")
		if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
		_, err := Open(path)
		wantID(t, err, idFull)
		_, err = Create(path, newInfo())
		wantID(t, err, idFull)
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		id := openClosed(t, path)

		if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
		d, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.WriteHolder("127.0.0.1:7443"); err != nil {
			t.Error(err)
		}
		wantID(t, d.SetHold(Hold{Reason: "test"}), idFull)
		if _, held, err := d.Hold(); held || err != nil {
			t.Errorf("held %v, %v", held, err)
		}
		closeDir(t, d)
		before := listTree(t, disk)
		_, err = Replace(path)
		wantID(t, err, idFull)
		if diff := cmp.Diff(before, listTree(t, disk)); diff != "" {
			t.Errorf("files changed (-before +after):\n%s", diff)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if again := openClosed(t, path); again != id {
			t.Errorf("the id was %s and is %s", id, again)
		}
	})
}
